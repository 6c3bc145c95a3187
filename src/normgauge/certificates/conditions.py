"""What a bound rests on and nobody can check from here, in words that read after "provided"."""

from __future__ import annotations

TRAIN = "the samples of train are independent draws from the source the promise is about, none left out or added"
UNSEEN = "neither training nor a choice among networks beyond tries= saw them"
HOLDOUT = (
    "the hold-out samples are independent draws from the source the promise is about (not frames, windows or records "
    f"of one scene, series or person: then give groups=), and {UNSEEN}"
)
GROUPS = (
    f"the groups of the hold-out are independent draws from the source the promise is about, and {UNSEEN}; what is "
    "promised is the error of a random sample of a random group, every group weighing the same"
)
UNLABELED = "the unlabeled inputs are independent draws from the source the promise is about, unseen by either network"
CELLS = "the cells were fixed without train"
ENCODER = "the encoder never saw a sample of train"
CODE = (
    "the architecture, all it reads from outside and every number it keeps outside its tensors were fixed without train"
)
FREE = "the tensors named in data_free= were fixed without train"
STEADY = "the network is used as it was measured, in eval mode, each answer a function of its input alone"
INITIAL = "the weights given as initial= never saw a sample of train"
CORESET = "a recipe fixed before makes the network, with all it keeps, of the set of these samples, in whatever order"
PICKED = "the network was made by pick-to-learn, by a recipe fixed before"
SURROGATE = (
    "the samples given with the surrogate are independent draws from the source the promise is about, and neither its "
    "training nor a choice among networks beyond tries= saw them"
)
EXACT = "rounding changes no output of the network by more than a hundred-thousandth of the largest"


def joined_conditions(*parts: str) -> str:
    """Join conditions with semicolons, without repeats and empty ones.

    >>> joined_conditions(TRAIN, "", CELLS)
    'the samples of train are independent draws ...; the cells were fixed without train'
    """
    return "; ".join(part for part in dict.fromkeys(parts) if part)
