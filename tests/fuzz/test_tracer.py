"""Networks that are hard to trace: no proved bound is below a slope of the model itself."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.fuzz import oracle, tracing
from tests.fuzz.jobs import awkward, shared
from tests.fuzz.oracle import Subject, slopes, went
from tests.fuzz.tracer import attack
from tests.fuzz.tracing import TRICKS, make_subject, trick

EACH = 2


@pytest.mark.parametrize("name", sorted(TRICKS))
def test_no_difference_exceeds_a_proved_bound(name):
    for seed in range(EACH):
        attempt = attack(seed, name)
        assert not attempt.broken, "\n".join([*attempt.broken, make_subject(seed, name).describe()])


@pytest.mark.parametrize("module", [oracle, tracing, trick, *tracing.FAMILIES], ids=lambda m: m.__name__)
def test_the_oracle_shares_no_code_with_the_library(module):
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported and not any(name.startswith("normgauge") for name in imported)


def test_the_oracle_finds_what_is_there():
    """The steepest slope of a linear map, of a curve in a ball, and of a branch that only some data take."""
    weight = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    linear = nn.Linear(2, 2).double()
    with torch.no_grad():
        linear.weight.copy_(weight)
    batch = torch.ones(1, 2, dtype=torch.float64)
    subject = Subject("linear", 0, linear, batch)
    for radius in (float("inf"), 0.5, 0.0):
        assert max(s.size for s in slopes(subject, radius)) == pytest.approx(4.0, rel=3e-3)

    class Branch(nn.Module):
        def forward(self, x):
            return 9 * x if went(bool(x.sum() > 5)) else x * 1.0

    found = list(slopes(Subject("branch", 0, Branch(), batch, hints=(batch + 3,)), float("inf")))
    assert max(s.size for s in found) >= 9
    assert max(s.size for s in found if s.same_path) == pytest.approx(1.0, rel=1e-4)


def test_the_same_seed_is_the_same_network():
    a, b = make_subject(11), make_subject(11)
    assert str(a.model) == str(b.model) and a.batch.equal(b.batch)


def test_processes_share_the_networks():
    alone, together = ([a.answers for a in shared(partial(awkward, "exchanged"), range(3), jobs)] for jobs in (1, 2))
    assert alone == together and len(alone) == 3
