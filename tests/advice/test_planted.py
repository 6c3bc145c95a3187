"""Planted problems are named with their layer, healthy networks get none, a rescaling changes nothing.

A slice of benchmarks/advice.py, on seeds of its own: one network of each kind and family.
"""

from __future__ import annotations

import pytest
import torch

import normgauge as ng
from benchmarks.planted import NORMS, PLANTED, healthy, rescaled, trained

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install normgauge[data]")
SEEDS = (501, 502)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", sorted(PLANTED))
def test_a_planted_problem_is_named_with_its_layer(kind, seed):
    case = PLANTED[kind](seed)
    problems = ng.advise(case.model, case.batch, facts=False).problems
    named = [remark for remark in problems if remark.kind == case.kind and remark.layer in case.layers]
    assert named, (case.family, case.layers, [(r.kind, r.layer) for r in problems])
    assert named[0].layer in named[0].sentence
    assert named[0].sentence.endswith(".")


@pytest.mark.parametrize("family", ["mlp", "conv", "res", "vit"])
@pytest.mark.parametrize("norms", [NORMS, (None,)], ids=["normalized", "plain"])
def test_a_healthy_network_and_its_rescaled_copy_get_no_problem(family, norms):
    for seed in SEEDS:
        case = healthy(seed, (family,), norms)
        twin = rescaled(case, seed)
        with torch.no_grad():
            torch.testing.assert_close(twin.model(twin.batch), case.model.double()(twin.batch), rtol=0.1, atol=0.01)
        for looked_at in (case.model.float(), twin.model):
            batch = case.batch if looked_at is case.model else twin.batch
            assert ng.advise(looked_at, batch, facts=False).problems == ()


def test_a_trained_network_gets_no_problem():
    case = trained(503, epochs=2)
    assert ng.advise(case.model, case.batch, facts=False).problems == ()


def test_a_large_weight_before_a_batch_normalizer_is_none_unless_the_statistics_are_stale():
    case = healthy(504, ("mlp",), ("batch",))
    layer = case.model.layers[1]
    with torch.no_grad():
        layer.linear.weight.mul_(1e4)
        layer.linear.bias.mul_(1e4)
    assert [r.kind for r in ng.advise(case.model, case.batch, facts=False).problems] == ["stale statistics"]
    with torch.no_grad():
        layer.norm.running_mean.mul_(1e4)
        layer.norm.running_var.mul_(1e8)
    assert ng.advise(case.model, case.batch, facts=False).problems == ()
