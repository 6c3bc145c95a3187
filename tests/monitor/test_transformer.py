"""Gains of heads, logits and what else transformers need: true, found however it is written, free of the gauge."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.core import store
from normgauge.monitor.instruments import Instruments
from normgauge.monitor.layers import find_layers
from normgauge.monitor.sheet import UNCHANGED, fetch_numbers
from tests.monitor.gpts import HEADS, WIDTH, WORDS, Attending, SmallGPT, Transposed, turned

EACH = WIDTH // HEADS
HOWS = ("fused", "separate", "turned", "written", "inside", "unbound", "transposed", "torch")
TOKENS = torch.arange(3 * 7).reshape(3, 7) % WORDS


def unexpected(error: Exception) -> None:
    raise error


def rows_of(model: nn.Module, given: torch.Tensor = TOKENS) -> dict[str, dict[str, float]]:
    """The numbers of each layer at one reading, by name."""
    instruments = Instruments(model, find_layers(model), (), unexpected)
    instruments.arm()
    model(given).square().mean().backward()
    sheet = instruments.read()
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    rows = instruments.finish(sheet, None, 1)
    instruments.close()
    model.zero_grad()
    return {layer.name: row for layer, row in zip(instruments.layers, rows, strict=True)}


def part(attend: nn.Module, place: int, what: str = "weight") -> torch.Tensor:
    """Rows of queries, keys or values, or their bias: (heads, width of each, ...), a view."""
    if isinstance(attend, nn.MultiheadAttention):
        return getattr(attend, f"in_proj_{what}").unflatten(0, (3, -1, EACH))[place]
    if "one" in attend._modules:
        return getattr((attend.one, attend.two, attend.three)[place], what).unflatten(0, (-1, EACH))
    values = getattr(attend.all, what)
    values = values.T if isinstance(attend.all, Transposed) and what == "weight" else values
    return (
        values.unflatten(0, (-1, 3, EACH))[:, place]
        if attend.how == "inside"
        else values.unflatten(0, (3, -1, EACH))[place]
    )


def behind(attend: nn.Module) -> torch.Tensor:
    """Columns of the weight behind the attention: (outputs, heads, width of each), a view."""
    last = attend.out_proj if isinstance(attend, nn.MultiheadAttention) else attend.last
    return (last.weight.T if isinstance(last, Transposed) else last.weight).unflatten(1, (-1, EACH))


def rescale_normalizers(model: SmallGPT) -> None:
    for block in model.blocks:
        for norm, place in ((block.first, "attend"), (block.second, "up")):
            factor = 10 ** torch.linspace(-1, 1, WIDTH, dtype=torch.float64)
            for parameter in norm.parameters():
                parameter.mul_(factor)
            weights = [block.up.weight] if place == "up" else [part(block.attend, i) for i in range(3)]
            for weight in weights:
                weight.div_(factor)


def rescale_pairs(model: SmallGPT) -> None:
    for block in model.blocks:
        factor = 10 ** torch.linspace(-1, 1, 2 * WIDTH, dtype=torch.float64)
        block.up.weight.mul_(factor[:, None])
        block.up.bias.mul_(factor)
        block.down.weight.div_(factor)


def rescale_heads(model: SmallGPT) -> None:
    for block in model.blocks:
        count = part(block.attend, 1).shape[0]
        factor = 10 ** torch.linspace(-1, 1, count, dtype=torch.float64)
        each = factor.repeat_interleave(HEADS // count)
        for place, by in ((0, each), (1, 1 / factor), (2, factor)):
            part(block.attend, place).mul_(by[:, None, None])
            part(block.attend, place, "bias").mul_(by[:, None])
        behind(block.attend).div_(each[:, None])


GAUGES = {"normalizers": rescale_normalizers, "pairs": rescale_pairs, "heads": rescale_heads}


@pytest.mark.parametrize("gauge", GAUGES)
@pytest.mark.parametrize("how", HOWS)
def test_marked_columns_do_not_see_their_gauges(how, gauge):
    model = SmallGPT(how, kv_heads=2 if how == "turned" else HEADS)
    other = copy.deepcopy(model)
    with torch.no_grad():
        GAUGES[gauge](other)
    assert torch.allclose(model(TOKENS), other(TOKENS), rtol=1e-9)
    before, after = rows_of(model), rows_of(other)
    columns = [name for name, gauges in UNCHANGED.items() if gauge in gauges and name != "log10_folded"]
    seen = set()
    for name, row in before.items():
        for column in columns:
            if column in row:
                seen.add(column)
                assert after[name][column] == pytest.approx(row[column], rel=1e-6), (name, column)
    assert seen == set(columns)
    assert any(after[name]["frobenius"] != pytest.approx(row["frobenius"], rel=0.1) for name, row in before.items())


def truth(model: SmallGPT, block: int) -> tuple[list[float], list[float]]:
    """Gains of the heads of a block by singular values."""
    attend, gamma = model.blocks[block].attend, model.blocks[block].first.weight
    q, k, v = (part(attend, place) * gamma for place in range(3))
    k, v = (t.repeat_interleave(HEADS // t.shape[0], 0) for t in (k, v))
    o = behind(attend).movedim(1, 0)  # (heads, outputs, width)
    return torch.linalg.matrix_norm(q.mT @ k, 2).tolist(), torch.linalg.matrix_norm(o @ v, 2).tolist()


@pytest.mark.parametrize("how", HOWS)
def test_gains_are_those_of_the_products_however_attention_is_written(how, tmp_path):
    model = SmallGPT(how, kv_heads=2 if how == "turned" else HEADS)
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        model(TOKENS).square().mean().backward()
        monitor.step()
    run = store.read(monitor.path)
    heads = run.steps[0]["heads"]
    assert len(heads) == 2 and not run.notes
    for block, (name, found) in enumerate(heads.items()):
        place = run.layers.index(name)
        for column, true in zip(("qk_gain", "ov_gain"), truth(model, block), strict=True):
            assert found[column] == pytest.approx(true, rel=3e-3)
            assert all(one >= t * (1 - 1e-5) for one, t in zip(found[column], true, strict=True))
            assert run.steps[0]["columns"][column][place] == max(found[column])


def first_logits(model: SmallGPT, block: int) -> torch.Tensor:
    """All logits of the first sample in a block, by hand."""
    x = model.words(TOKENS[:1])
    for one in model.blocks[:block]:
        x = one(x)
    here = model.blocks[block]
    attend, y = here.attend, here.first(x)[0]
    q, k = (torch.einsum("td,hwd->htw", y, part(attend, i)) + part(attend, i, "bias")[:, None] for i in (0, 1))
    k = k.repeat_interleave(HEADS // k.shape[0], 0)
    if isinstance(attend, Attending) and attend.how == "turned":
        q, k = turned(q), turned(k)
    return q @ k.mT / EACH**0.5


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("how", HOWS)
def test_the_largest_logit_is_seen_and_lies_below_its_bound(how, norm):
    model = SmallGPT(how, norm, kv_heads=2 if how == "turned" else HEADS)
    rows = [row for row in rows_of(model).values() if "qk_gain" in row]
    for block, row in enumerate(rows):
        assert row["logit_max"] == pytest.approx(first_logits(model, block).abs().max().item(), rel=1e-9)
        assert row["logit_max"] <= row["logit_bound"]


@pytest.mark.parametrize("how", ["fused", "turned"])
def test_no_input_has_a_logit_above_the_bound(how):
    model = SmallGPT(how)
    row = next(row for row in rows_of(model).values() if "qk_gain" in row)
    attend, norm = model.blocks[0].attend, model.blocks[0].first
    x = torch.randn(64, WIDTH, dtype=torch.float64, requires_grad=True)
    climb, found = torch.optim.Adam([x], 0.1), 0.0
    for _ in range(100):
        q, k = (
            torch.einsum("td,hwd->htw", norm(x), part(attend, i)) + part(attend, i, "bias")[:, None] for i in (0, 1)
        )
        top = (q @ k.mT).abs().max() / EACH**0.5
        found = max(found, top.item())
        climb.zero_grad()
        (-top).backward()
        climb.step()
    assert 0.4 * row["logit_bound"] < found <= row["logit_bound"]


def test_normalized_queries_have_no_gain_and_one_note_says_so(tmp_path):
    model = SmallGPT("normed")
    with ng.Monitor(model, tmp_path, every=1) as monitor:
        for _ in range(2):
            model(TOKENS).square().mean().backward()
            monitor.step()
    run = store.read(monitor.path)
    assert "qk_gain" not in run.steps[0]["columns"] and "logit_bound" not in run.steps[0]["columns"]
    assert max(v for v in run.steps[0]["columns"]["ov_gain"] if v is not None) > 0
    assert [note["sentence"] for note in run.notes] == [
        "no gains of the heads in front of queries and keys of blocks.0.attend.last, blocks.1.attend.last "
        "(normalized or changed)."
    ]


def test_the_residual_stream_and_rows_of_embedding_and_head():
    model = SmallGPT()
    rows = rows_of(model)
    x = model.words(TOKENS)
    for block, there in zip(model.blocks, ("blocks.0.first", "blocks.1.first"), strict=True):
        assert rows[there]["input_rms"] == pytest.approx(x.square().mean().sqrt().item(), rel=1e-9)
        x = block(x)
    assert rows["norm"]["input_rms"] == pytest.approx(x.square().mean().sqrt().item(), rel=1e-9)
    for name, weight in (("words", model.words.weight), ("head", model.head.weight)):
        assert rows[name]["row_max"] == pytest.approx(weight.norm(dim=1).max().item(), rel=1e-9)
    assert sum("row_max" in row for row in rows.values()) == 2


class Corrected(nn.Module):
    """A frozen layer with a correction of low rank."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Linear(12, 8).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(12, 3, bias=False), nn.Linear(3, 8, bias=False)
        self.scaling = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.scaling * self.lora_B(self.lora_A(x))


def test_a_correction_of_low_rank_is_measured_against_its_weight():
    model = Corrected().double()
    norms = [torch.linalg.matrix_norm(w, 2) for w in (model.lora_B.weight @ model.lora_A.weight, model.base.weight)]
    rows = rows_of(model, torch.randn(5, 12, dtype=torch.float64))
    assert rows["base"]["adapter"] == pytest.approx((2 * norms[0] / norms[1]).item(), rel=5e-3)
    assert not any("adapter" in row for name, row in rows.items() if name != "base")
    with torch.no_grad():
        model.lora_A.weight.mul_(10)
        model.lora_B.weight.div_(10)
    again = rows_of(model, torch.randn(5, 12, dtype=torch.float64))
    assert again["base"]["adapter"] == pytest.approx(rows["base"]["adapter"], rel=1e-6)
