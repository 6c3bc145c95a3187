"""Rows that do not reach the output count in the bound and nowhere else: nothing is named or told by them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.instrument.session import opened
from normgauge.instrument.unreached import unreached_rows
from normgauge.render.explain import explain
from normgauge.render.verdict import verdict_line
from tests.instrument.trace.nets import Net

SIZES = torch.tensor([[1.0, 0.5, 1e-3], [0.25, 1e-4, 1e-3]], dtype=torch.float64)  # of the rows; the least are padding
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])


def rows() -> Tensor:
    return torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * SIZES[..., None]


class Pooled(nn.Module):
    """Rows normalized, mixed without a change of rows, and pooled over what the mask keeps."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.out, self.pool = nn.LayerNorm(8).double(), nn.Linear(8, 8).double(), pool

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.pool(self.out(self.norm(x)), mask)


def mean(h: Tensor, mask: Tensor) -> Tensor:
    return (h * mask.unsqueeze(-1).to(h)).sum(1) / mask.sum(1, keepdim=True).to(h)


def first(h: Tensor, mask: Tensor) -> Tensor:
    return h[:, 0]


def zeroed(h: Tensor, mask: Tensor) -> Tensor:
    return h * mask.unsqueeze(-1).to(h)


def attended(h: Tensor, mask: Tensor) -> Tensor:
    keep = torch.where(mask[:, None, :].expand(-1, 3, -1) > 0, 0.0, torch.finfo(torch.float32).min).to(h)
    return mean(nn.functional.scaled_dot_product_attention(h, h, h, keep), mask)


@pytest.mark.parametrize(("pool", "lives"), [(mean, MASK), (zeroed, MASK), (attended, MASK), (first, [[1, 0, 0]] * 2)])
def test_padding_is_neither_named_nor_told(pool: Any, lives: Any) -> None:
    net, x, lives = Pooled(pool), rows(), torch.as_tensor(lives).bool()
    found = ng.gauge(net, (x, MASK), search=False)
    record = found.layer("norm")
    sigma = (x.var(-1, correction=0) + 1e-5).sqrt()
    assert record.log_gain_reaching == pytest.approx(-math.log(sigma[lives].min()), abs=1e-6)
    assert record.gain.hi == pytest.approx(-math.log(sigma.min()), abs=1e-6)  # what the bound is made of
    assert record.gain.lo <= record.log_gain_reaching
    assert record.sigma["min"] == pytest.approx(float(sigma[lives].min()))
    assert record.sigma["max"] == pytest.approx(float(sigma[lives].max()))
    assert record.sigma["rms"] == pytest.approx(float(sigma[lives].square().mean().sqrt()))
    told = " ".join(explain(found, "norm").split())
    sample = int(torch.where(lives, sigma, math.inf).amin(1).argmin())
    row = int(torch.where(lives, sigma, math.inf)[sample].argmin())
    place = f"sample {sample}, row {row}" if lives[sample].sum() > 1 else f"sample {sample}"
    assert (
        f"{place}: max|γ|" in told and "since rows that do not reach it stretch more" in told and "padding" not in told
    )
    assert record.note == ""  # that σ falls to the ε floor is true of padding alone
    assert (
        f"by itself, at most {math.exp(record.log_gain_reaching):.2f}"[:-1] in verdict_line(found) or pool is attended
    )
    assert any("do not reach the output" in note for note in found.notes)
    assert ng.Reading.from_json(found.to_json()).layer("norm").log_stretch == pytest.approx(record.log_gain_reaching)


def test_rows_that_reach_the_output_all_count() -> None:
    found = ng.gauge(Net(lambda x, norm: norm(x).sum(1), nn.LayerNorm(8).double()), rows(), search=False)
    record = found.layer("parts.0")
    assert record.log_gain_reaching is None and record.log_stretch == record.gain.hi
    assert not any("do not reach" in note for note in found.notes)


def test_a_row_that_is_only_silent_here_counts() -> None:
    """No gradient comes back through a ReLU that is off, but another value of the row would turn it on."""

    def silent(x: Tensor, norm: nn.Module) -> Tensor:
        return torch.relu(norm(x) - torch.tensor([0.0, 9.0, 0.0], dtype=x.dtype)[:, None] / 4).sum(1)

    net = Net(silent, nn.LayerNorm(8).double())
    with opened(net, rows()) as session:
        assert not unreached_rows(session)


def test_the_bound_is_that_of_all_rows() -> None:
    """What is seen at the samples is no proof: gains of the composition stay what they were."""
    net, x = Pooled(mean), rows()
    found = ng.gauge(net, (x, MASK), search=False)
    step = next(step for step in found.proof.steps if step.layer == "norm")
    assert max(step.folded[0]) == pytest.approx(found.layer("norm").gain.hi, abs=1e-6)


class Bent(Pooled):
    """A steep curve behind the pool, whose bound is loose at every length."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.tanh(4 * super().forward(x, mask))


def test_the_gap_is_not_that_of_padding() -> None:
    """Its share, and so its owner, are those of the same rows without padding, where the bound is theirs alone."""
    net, x = Bent(mean), rows()[:1]
    padded = ng.gauge(net, (x, MASK[:1]), search=False)
    plain = ng.gauge(net, (x[:, :2], MASK[:1, :2]), search=False)
    norm, alone = padded.layer("norm"), plain.layer("norm")
    assert norm.log_slack > alone.log_slack + 1  # what the bound contains
    assert norm.log_slack_reaching == pytest.approx(alone.log_slack_reaching, abs=0.02)
    assert alone.log_slack_reaching == alone.log_slack
    owners = [found.gap_owner() for found in (padded, plain)]
    assert owners[0].name == owners[1].name != "norm"
    assert max(padded.layers, key=lambda r: r.log_slack or 0.0).name == "norm"
    assert any("such as padding, count in the bounds composed of layers" in note for note in padded.notes)
    assert not any("padding" in note for note in plain.notes)


def test_advice_says_what_padding_is_a_part_of_and_names_another_layer() -> None:
    net, x = Bent(mean), rows()[:1]
    (gap,) = [fact for fact in ng.advise(net, (x, MASK[:1])).facts if fact.kind == "gap"]
    (alone,) = [fact for fact in ng.advise(net, (x[:, :2], MASK[:1, :2])).facts if fact.kind == "gap"]
    assert gap.layer == alone.layer != "norm"
    assert "such as padding, are a part of that" in gap.sentence and "padding" not in alone.sentence
    assert gap.numbers["share"] == pytest.approx(alone.numbers["share"], abs=0.02)
    assert "the batch has 1 sample;" in str(ng.advise(net, (x, MASK[:1])))


def test_padding_that_gains_nothing_is_told_too() -> None:
    """Rows that do not reach the output may count in other layers than normalizers."""
    x = torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[~MASK.bool()] *= 100
    found = ng.gauge(Pooled(mean), (x, MASK), search=False)
    assert found.layer("norm").log_gain_reaching is None
    assert any(note.startswith("rows that do not reach the output at the samples, such as") for note in found.notes)
    everywhere = ng.gauge(Pooled(mean), (x, MASK), scope="global", search=False)
    assert not any(note.startswith("rows that do not reach") for note in everywhere.notes)


def test_epsilon_is_not_said_to_decide_by_padding_alone() -> None:
    x, mask = rows()[:1] * 0, torch.tensor([[1, 0, 0]])
    x[:, 0] = rows()[0, 0]
    assert not ng.advise(Pooled(mean), (x, mask)).problems
    assert [r.kind for r in ng.advise(Pooled(mean), (x, torch.ones_like(mask))).problems] == ["epsilon decides"]
