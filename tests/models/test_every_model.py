"""Every model that runs can be measured: a number or one line that says why not, never a traceback."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import rnn

import normgauge as ng

SCOPES = ("point", "global")


class Through(nn.Module):
    """A linear map, then a function of its output and the other arguments."""

    def __init__(self, does: Callable[..., Any], size: int = 4) -> None:
        super().__init__()
        self.inner, self.does = nn.Linear(size, size), does

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        return self.does(self.inner(x), *more, **named)


def measured(model: nn.Module, batch: Any) -> list[Any]:
    """Point and global reading; what was found is never above what is proved."""
    torch.manual_seed(0)
    found = ng.readings(model.eval(), batch, SCOPES, search=False, balance=False)
    assert len(found) == len(SCOPES) and all(r.log_lower <= r.log_upper for r in found)
    return found


# --- masks -----------------------------------------------------------------------------------------------------------


def padding(kind: str, shape: tuple[int, ...]) -> Tensor:
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[..., -1] = True
    if len(shape) > 1:
        mask[0] = False
    if kind == "bool":
        return mask
    return torch.zeros(shape).masked_fill(mask, -math.inf) if kind == "float" else torch.randn(shape)


class Attended(nn.Module):
    """Attention of a sequence to itself, with a mask for its keys."""

    def __init__(self, first: bool, weights: bool) -> None:
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(8, 2, batch_first=first), weights

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=mask, need_weights=self.weights)[0]


@pytest.mark.parametrize("weights", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("kind", ["bool", "float", "soft"])
@pytest.mark.parametrize("form", ["batch first", "length first", "no batch"])
def test_attention_with_a_mask_for_its_keys(form, kind, weights):
    torch.manual_seed(0)
    x = {"batch first": (3, 5, 8), "length first": (5, 3, 8), "no batch": (5, 8)}[form]
    mask = padding(kind, (5,) if form == "no batch" else (3, 5))
    point, _ = measured(Attended(form == "batch first", weights), {"x": torch.randn(x), "mask": mask})
    assert not point.unknown and math.isfinite(point.log_upper)


class Encoded(nn.Module):
    """An encoder with a mask for padding."""

    def __init__(self, nested: bool, norm_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


@pytest.mark.filterwarnings("ignore:.*(nested tensor|enable_nested).*")
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("nested", [True, False], ids=["nested", "plain"])
@pytest.mark.parametrize("norm_first", [True, False], ids=["norm first", "norm last"])
def test_an_encoder_with_a_mask_for_padding(nested, norm_first, kind):
    torch.manual_seed(0)
    batch = {"x": torch.randn(3, 5, 8), "mask": padding(kind, (3, 5))}
    point, _ = measured(Encoded(nested, norm_first), batch)
    assert not point.unknown and math.isfinite(point.log_upper)


# --- tensors without entries -----------------------------------------------------------------------------------------

EMPTY: dict[str, Callable[[Tensor], Tensor]] = {
    "cat": lambda x: torch.cat([x[:, :0], x], 1),
    "split": lambda x: torch.cat(x.split([0, 4], 1), 1),
    "sum": lambda x: x[:, :0].sum(1, keepdim=True) + x,
    "norm": lambda x: x[:, :0].norm() + x,
    "product": lambda x: torch.cat([x[:0] * x[:0], x]),
    "quotient": lambda x: torch.cat([x[:0] / (1 + x[:0] ** 2), x]),
    "pad": lambda x: F.pad(x[:, :0], (2, 2)) + x,
    "linear, no rows": lambda x: torch.cat([F.linear(x[:0], torch.ones(4, 4, dtype=x.dtype)), x]),
    "linear, no inputs": lambda x: F.linear(x[:, :0], torch.ones(4, 0, dtype=x.dtype)) + x,
    "matmul": lambda x: x[:, :0] @ torch.ones(0, 4, dtype=x.dtype) + x,
    "matmul of two": lambda x: x[:, :0] @ x[:0, :] + x,
    "einsum": lambda x: torch.einsum("bi,bj->ij", x[:0], x[:0]) + x.sum(0),
    "convolution": lambda x: torch.cat([F.conv1d(x[:0, None], torch.ones(1, 1, 3, dtype=x.dtype))[:, 0], x[:, :2]]),
    "softmax": lambda x: torch.cat([x[:, :0].softmax(1), x], 1),
    "attention": lambda x: torch.cat([F.scaled_dot_product_attention(*[x[:0, None]] * 3)[:, 0], x]),
    "LayerNorm": lambda x: torch.cat([F.layer_norm(x[:0], (4,)), x]),
    "BatchNorm": lambda x: torch.cat([F.batch_norm(x[:0], x.new_zeros(4), x.new_ones(4)), x]),
    "normalize": lambda x: torch.cat([F.normalize(x[:0]), F.normalize(x)]),
    "pooling": lambda x: torch.cat([F.max_pool1d(x[:0, None], 2)[:, 0], F.max_pool1d(x[:, None], 2)[:, 0]]),
    "GELU": lambda x: torch.cat([F.gelu(x[:0]), x]),
    "expanded": lambda x: torch.cat([x[:1].expand(0, 4), x]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_entries(name):
    torch.manual_seed(0)
    point, everywhere = measured(Through(EMPTY[name]), torch.randn(3, 4))
    assert not point.unknown and math.isfinite(point.log_upper)
    assert not everywhere.unknown


def test_what_comes_of_nothing_is_constant_and_no_more():
    net = Through(lambda x: x + 3 * x[:, :0].sum(1, keepdim=True))
    point, everywhere = measured(net, torch.randn(3, 4))
    exact = math.log(float(torch.linalg.matrix_norm(net.inner.weight.detach().double(), 2)))
    assert point.log_upper == pytest.approx(exact, abs=1e-6) == everywhere.log_upper


def test_an_expert_without_tokens_does_not_hide_the_choice_of_experts():
    """The rows an expert gets depend on the data: none at this batch, some at others."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(4, 6), nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            chosen, out = self.router(x).argmax(1), torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (chosen == number).nonzero().flatten()
                out[rows] = expert(x[rows])
            return out

    torch.manual_seed(0)
    for reading in measured(Experts(), torch.randn(3, 4)):
        assert reading.unknown or reading.log_upper == math.inf


# --- sequences of several lengths ------------------------------------------------------------------------------------


class Packed(nn.Module):
    """A recurrent layer over packed sequences, unpacked again."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.cell = kind(4, 3, batch_first=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.tensor([2, 5, 4])
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = self.cell(packed)
        padded, _ = rnn.pad_packed_sequence(out, batch_first=True, padding_value=-2.0, total_length=6)
        last = last[-1] if isinstance(last, tuple) else last
        return torch.cat([padded.flatten(1), last.transpose(0, 1).flatten(1)], 1)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=["one", "four"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda k: k.__name__)
def test_packed_sequences(kind, options):
    torch.manual_seed(0)
    point, _ = measured(Packed(kind, **options), torch.randn(3, 5, 4))
    assert not point.unknown and math.isfinite(point.log_upper)


# --- batches and answers of any form ---------------------------------------------------------------------------------


@dataclasses.dataclass
class Inner:
    value: Tensor
    other: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class Outer:
    name: str
    inner: Inner
    more: tuple[Any, ...] = ()


Pair = collections.namedtuple("Pair", "a b")


class Reader(nn.Module):
    """Takes its tensor out of the batch in some way and gives it back in another."""

    def __init__(self, take: Callable[..., Tensor], give: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.take, self.give = nn.Linear(4, 4), take, give

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.give(self.inner(self.take(*given, **named)))


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
FORMS: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor], Any], Any]] = {
    "keywords of every kind": (
        lambda **k: k["x"],
        lambda y: {"a": {"b": [None, y]}, "c": None, "d": "text", "e": 3},
        {"x": X, "none": None, "text": "t", "number": 3, "list": [1, "a", None], "truth": True},
    ),
    "dataclasses": (lambda o: o.inner.value, lambda y: Outer("a", Inner(y), (None,)), Outer("x", Inner(X))),
    "named tuples": (lambda p: p.a, lambda y: Pair(y, None), (Pair(X, "b"),)),
    "mappings": (lambda d: d[0], lambda y: collections.OrderedDict(y=y, n=None), ({0: X, 1: None, "s": "t"},)),
    "None among answers": (lambda x, y=None, z="": x, lambda y: (None, y, None), (X, None, "b")),
}


@pytest.mark.parametrize("name", FORMS)
def test_batches_and_answers_of_any_form(name):
    take, give, batch = FORMS[name]
    model = Reader(take, give)
    point, _ = measured(model, batch)
    exact = math.log(float(torch.linalg.matrix_norm(model.inner.weight.detach().double(), 2)))
    assert point.log_upper == pytest.approx(exact, abs=1e-6)
    assert point.log_lower == pytest.approx(exact, abs=1e-4)  # the tensor was found and moved where it lies
    assert point.evidence.value == "proved"


def test_a_forward_that_takes_the_whole_batch_only():
    def whole(h: Tensor) -> Tensor:
        if len(h) != 3:
            raise AssertionError("three samples, please")
        return h

    point, _ = measured(Through(whole), X)
    assert math.isfinite(point.log_upper)


def test_samples_and_channels_along_one_axis():
    """(samples · channels) as channels of one image, as vision models do that cut images into patches."""

    class Unfolded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4))
            self.norm, self.second = nn.LayerNorm(4), nn.Linear(4, 3)
            nn.init.uniform_(self.first[1].weight, 0.5, 2.0)

        def forward(self, x: Tensor) -> Tensor:
            patches = self.first(x).reshape(len(x) * 4 * 2, 2, 2, 2).transpose(1, 2).reshape(len(x), 4, 4, 4)
            return self.second(self.norm(patches.transpose(1, 3).reshape(len(x) * 4, 4, 4))).reshape(len(x), -1)

    torch.manual_seed(0)
    point, _ = measured(Unfolded(), torch.randn(3, 2, 4, 4))
    assert math.isfinite(point.log_upper)


# --- what is refused, in one line ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], tuple[nn.Module, Any]], str]] = {
    "lazy": (lambda: (nn.Sequential(nn.LazyLinear(3), nn.ReLU()), X), "0.weight has no shape yet"),
    "lazy normalizer": (lambda: (nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d()), X), "1.weight has no shape yet"),
    "expanded batch": (lambda: (nn.Linear(4, 4), torch.zeros(1, 4).expand(10**12, 4)), "GB for copies in float64"),
    "expanded extra": (
        lambda: (Through(lambda h, y: h + y[0, 0]), {"x": X, "y": torch.zeros(1, 1).expand(10**6, 10**7)}),
        "of it is for y",
    ),
    "sparse": (lambda: (Reader(lambda x: x.to_dense(), lambda y: y), X.to_sparse()), "dense"),
    "complex": (lambda: (Reader(lambda x: x.real, lambda y: y), X.to(torch.complex64)), "real numbers"),
    "nested": (
        lambda: (Reader(lambda x: x.to_padded_tensor(0.0), lambda y: y), torch.nested.nested_tensor([X, X[:2]])),
        "nested",
    ),
}


@pytest.mark.filterwarnings("ignore:.*nested tensors.*", "ignore:Lazy modules.*")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_is_refused_in_one_line(name):
    made, words = REFUSED[name]
    model, batch = made()
    with pytest.raises(ng.NormgaugeError, match=words) as caught:
        ng.gauge(model, batch, scope="point")
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Lazy modules.*")
def test_the_other_verbs_refuse_lazy_modules_too():
    model = nn.Sequential(nn.LazyLinear(3))
    for verb in (
        lambda: ng.symmetries(model, X, mode="train"),
        lambda: ng.curvature(model, F.cross_entropy, [(X, torch.tensor([0, 1, 2]))]),
        lambda: ng.advise(model, X),
    ):
        with pytest.raises(ng.NormgaugeError, match="no shape yet"):
            verb()
    model(X)
    assert math.isfinite(ng.gauge(model, X, scope="point").log_upper)
