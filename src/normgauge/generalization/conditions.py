"""What a bound rests on and nobody can check from here, in words that read after "provided"."""

from __future__ import annotations

TRAIN = "the samples of train are independent draws, as they were drawn"
HOLDOUT = "the hold-out samples are independent draws that nothing was chosen by"
UNLABELED = "the unlabeled inputs are independent draws that neither network was made with"
CELLS = "the cells were fixed without train"
ENCODER = "the encoder never saw a sample of train"
CODE = "the code, the shapes and the single numbers of the network were fixed without train"
INITIAL = "the weights given as initial= never saw a sample of train"
CORESET = "the network, with all it keeps, was made from these samples and no others of train, by a recipe fixed before"
PICKED = "the network was made by pick-to-learn, by a recipe fixed before"
SURROGATE = "the surrogate, with all it keeps, never saw the samples given with it"


def together(*parts: str) -> str:
    """Several conditions as one.

    >>> together(TRAIN, "", CELLS)
    'the samples of train are independent draws, as they were drawn; the cells were fixed without train'
    """
    return "; ".join(part for part in dict.fromkeys(parts) if part)
