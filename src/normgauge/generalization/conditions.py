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
UNLABELED = "the unlabeled inputs are independent draws that neither network was made with"
CELLS = "the cells were fixed without train"
ENCODER = "the encoder never saw a sample of train"
CODE = "the architecture, and every number the network keeps outside its tensors, were fixed without train"
INITIAL = "the weights given as initial= never saw a sample of train"
CORESET = "the network, with all it keeps, was made from these samples and no others of train, by a recipe fixed before"
PICKED = "the network was made by pick-to-learn, by a recipe fixed before"
SURROGATE = "the surrogate, with all it keeps, never saw the samples given with it"
EXACT = "rounding changes no output of the network by more than a hundred-thousandth of the largest"


def together(*parts: str) -> str:
    """Several conditions as one.

    >>> together(TRAIN, "", CELLS)
    'the samples of train are independent draws ...; the cells were fixed without train'
    """
    return "; ".join(part for part in dict.fromkeys(parts) if part)
