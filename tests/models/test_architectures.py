"""Architectures of transformers built by one generic function, small ones of every kind: each is measured."""

from __future__ import annotations

import math
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers", reason="transformers is not installed (pip install normgauge[llm])")

from benchmarks import transformers_models as survey

pytestmark = pytest.mark.llm

EMPTY = ("gptj", "phi3")  # tensors without entries
FOLDED = ("mobilevit",)  # samples and channels along one axis
PLAIN = (
    "deberta",
    "albert",
    "t5",
    "falcon",
    "gpt_neo",
    "mamba",
    "wav2vec2",
    "whisper",
    "swinv2",
    "segformer",
    "patchtst",
)


@pytest.mark.parametrize("name", [*EMPTY, *FOLDED, *PLAIN])
def test_it_is_measured(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        row = survey.measured(survey.built, name)
    assert row["verdict"] == "finite", row["why"]
    point, everywhere = row["point"], row["global"]
    assert point["log10_lower"] <= point["log10_upper"] <= float(everywhere["log10_upper"]) + 1e-6


def test_every_architecture_named_is_one_of_the_library():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = survey.configurations()
    asked = survey.CHOSEN.split()
    assert len(asked) == len(set(asked)) >= 150
    assert len([name for name in asked if name in known]) >= 0.9 * len(asked)  # libraries drop old models


def test_verdicts():
    """What is counted as a failure of ours: an exception that is none of our own errors, and types that disagree."""

    def broken(name: str) -> object:
        raise survey.Unbuilt("sizes")

    assert survey.measured(broken, "none")["verdict"] == "not built"

    class Odd(survey.nn.Module):
        def forward(self, x: survey.Tensor) -> survey.Tensor:
            return survey.torch.acosh(x)

    row = survey.measured(lambda name: (Odd(), 2 + survey.torch.rand(2, 3)), "odd")
    assert row["verdict"] in ("unknown", "finite") and (row["verdict"] == "finite" or "acosh" in row["why"])
    assert math.isfinite(row["seconds"])
