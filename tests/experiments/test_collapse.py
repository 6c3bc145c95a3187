"""How alike the features of different images become in the first steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from experiments.than2025 import collapse, data, nets, plan


def test_alike_and_dead_by_hand() -> None:
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
    cosines, dead = collapse.alike(model, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert cosines == pytest.approx((0.5,))  # each with itself 1, with the other 0
    assert dead == pytest.approx((1 / 3,))
    assert model.training and not model[1]._forward_hooks


def test_watch_follows_the_first_steps(specs: dict[str, plan.Spec], digits: data.Data) -> None:
    looks = list(collapse.watch(replace(specs["mlp-norms/mlp-layer"], batch=16), digits))
    assert [look.step for look in looks] == [0, 10, 50]  # as many as an epoch of digits has
    assert looks and all(len(look.alike) == 3 and all(0 <= c <= 1.001 for c in look.alike) for look in looks)
    assert looks[-1].loss < looks[1].loss


def test_the_pull_of_loss_against_decay_by_hand(specs: dict[str, plan.Spec], digits: data.Data) -> None:
    spec = replace(specs["mlp-norms/mlp-layer"], depth=1, norm="none")  # softmax regression
    [weight] = [p.detach() for p in nets.build(spec, digits.shape).parameters() if p.ndim > 1]
    chosen = torch.randperm(len(digits.labels), generator=torch.Generator().manual_seed(spec.seed))[: spec.batch]
    x = digits.real(digits.train[chosen]).flatten(1)
    wrong = torch.softmax(x @ weight.T, 1) - nn.functional.one_hot(digits.labels[chosen], 10)
    expected = (wrong.T @ x / len(x)).abs() / (spec.decay * weight.abs())
    assert collapse.pull(spec, digits) == pytest.approx((float(expected.median()),), rel=1e-4)


def test_lines(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    assert collapse.main(["widths/width4", "--lr", "0.001", "--scale", "digits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert collapse.main(["widths/width4", "--pull", "--scale", "digits"]) == 0
    [pulls] = capsys.readouterr().out.splitlines()
    assert pulls.startswith("widths/width4 ") and len(pulls.split()) == 11
    assert len(lines) == 2 and lines[0].startswith("widths/width4 lr 0.001 step   0 loss nan cosine ")
