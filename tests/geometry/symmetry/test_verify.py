"""A model run with other weights, without ε and without dropout, and left as it was."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normgauge.geometry.symmetry.generators import Generator
from normgauge.geometry.symmetry.verify import (
    Steady,
    WeightTrial,
    WithoutEps,
    random_move,
    relative,
    write_out,
)

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [([3.0, 4.0], [3.0, 4.0], 0.0), ([3.0, 4.0], [3.0, 9.0], 1.0), ([0.0, 0.0], [0.0, 0.0], 0.0),
     ([0.0, 0.0], [1.0, 0.0], math.inf), ([1.0, 0.0], [math.nan, 0.0], math.inf), ([math.inf], [math.inf], math.inf)],
)  # fmt: skip
def test_relative_changes(before, after, change):
    assert relative(torch.tensor(before), torch.tensor(after)) == change


@pytest.mark.parametrize(
    "norm", [nn.LayerNorm(4, eps=9.0), nn.GroupNorm(2, 4, eps=9.0), nn.BatchNorm1d(4, eps=9.0)],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_normalizers_without_epsilon_forget_the_scale(norm):
    norm = norm.double()
    with torch.no_grad(), WithoutEps(frozenset()):
        small, large = norm(X), norm(1e3 * X)
    assert torch.allclose(small, large) and not torch.allclose(norm(X), norm(1e3 * X), rtol=0.1)
    frozen = nn.BatchNorm1d(4, eps=9.0).double().eval()
    with torch.no_grad(), WithoutEps(frozenset()):
        assert torch.equal(frozen(X), frozen(X.clone())) and torch.allclose(frozen(X), X / math.sqrt(10))


def test_a_trial_puts_everything_back_also_after_an_error():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    live = {**dict(model.named_parameters()), "1.running_mean": model[1].running_mean}
    state = {name: t.detach().clone() for name, t in live.items()}
    trial = WeightTrial(lambda: model(X), live, state)
    assert trial.statistics == {"1.running_mean"}
    assert trial.defect({"0.bias": state["0.bias"] + 5}) < 1e-12
    assert trial.defect({"1.bias": state["1.bias"] + 5}) > 1
    trial.run = lambda: model(X[:, :2])
    with pytest.raises(RuntimeError):
        trial.output({"0.bias": state["0.bias"] + 5})
    assert trial.runs == 4 and all(torch.equal(live[name], tensor) for name, tensor in state.items())


def test_random_moves_are_small_for_scales_and_of_the_size_of_the_weights_for_shifts():
    state, seen = {"w": torch.full((8,), 50.0, dtype=torch.float64)}, {}
    for what in ("scale of rows", "shift that is taken off again", "rotation of what is normalized"):

        def move(state, numbers, what=what):
            seen.setdefault(what, []).append(numbers)
            return {"w": state["w"]}

        for seed in (0, 0, 1):
            random_move(Generator("scale", what, ("w",), 100, move), state, seed)
    largest = {what: float(numbers[0].abs().max()) for what, numbers in seen.items()}
    assert largest["scale of rows"] <= 0.69 and 40 < largest["shift that is taken off again"] <= 50
    assert largest["rotation of what is normalized"] <= 0.1
    for first, again, other in seen.values():
        assert torch.equal(first, again) and not torch.equal(first, other)


def test_nothing_is_dropped_and_nothing_turns_to_single():
    with Steady():
        assert torch.equal(F.dropout(X, 0.9), X) and torch.equal(F.alpha_dropout(input=X, p=0.5, training=True), X)
        assert X.float().dtype == X.to(torch.float16).dtype == X.softmax(-1, dtype=torch.float32).dtype == torch.float64
        assert X.long().dtype == torch.int64
        q = X.reshape(1, 1, 6, 4)
        dropped = [
            F.scaled_dot_product_attention(q, q, q, None, 0.9),
            F.scaled_dot_product_attention(q, q, q, dropout_p=0.9),
        ]
    assert all(torch.equal(t, F.scaled_dot_product_attention(q, q, q)) for t in dropped)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_written_out_compute_the_same(kind):
    torch.manual_seed(0)
    model = nn.Sequential(kind(4, 3, bidirectional=True).double())
    before: Tensor = model(X[None])[0]
    write_out(model)
    assert "forward" in model[0].__dict__ and torch.allclose(model(X[None])[0], before)
