"""What errors can grow to: measured reaches are above the true norms between steps."""

from __future__ import annotations

import torch
from torch import nn

from normgauge.core.bound import Scope
from normgauge.instrument.local import journey
from normgauge.instrument.local.amplify import Amplifier
from normgauge.instrument.session import Options, opened
from tests.instrument.local.nets import random_case


def amplifier_of(model: nn.Module, x: torch.Tensor, monkeypatch) -> tuple[Amplifier, int]:
    made: list[Amplifier] = []

    class Kept(Amplifier):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            made.append(self)

        def sharpen(self, value: int, size: float) -> None:
            super().sharpen(value, 0.0)  # measured everywhere, however small

    monkeypatch.setattr(journey, "Amplifier", Kept)
    with opened(model, x, Options(search=False)) as session, torch.no_grad():
        journey.swept_ball(session.trace, session.composed(Scope.parse("point")), 0, 0.0, session.native, 5)
        return made[0], session.trace.end.index


def test_measured_reaches_are_above_the_true_norms(monkeypatch) -> None:
    for seed in range(1, 12):
        model, x, _ = random_case(seed)
        found, end = amplifier_of(model.double(), x.double(), monkeypatch)
        places = [found.input, *(piece.output for piece in found.pieces)]
        rows = found.dummies[end][0].numel()
        for place, value in enumerate(places):
            columns = []
            for k in range(rows):
                shot = torch.zeros_like(found.dummies[end].detach())
                shot[0].reshape(-1)[k] = 1.0
                (grad,) = found.gradients(end, shot, [found.dummies[value]])
                columns.append(torch.zeros(1) if grad is None else grad[0].reshape(-1))
            if all(len(c) > 1 or bool(c.any()) for c in columns):
                true = float(torch.linalg.matrix_norm(torch.stack(columns), 2))
                assert true <= float(found.reach[end][place]) * (1 + 1e-9)


def test_values_in_float32_lie_within_what_is_told_for_float64(monkeypatch) -> None:
    """Errors of float32 are 2²⁹ times those of float64; the bound for the latter, scaled, must cover them."""
    for seed in (1, 2, 4, 5, 7, 8):
        model, x, _ = random_case(seed)
        exact = model.double()(x.double()).detach()
        found, end = amplifier_of(model, x.double(), monkeypatch)
        rough = model.float()(x.float()).double().detach()
        assert float((rough - exact).norm()) <= found.value_error(end) * 2**29 + 1e-30
