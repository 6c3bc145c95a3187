from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.certificates.facts.chain import BrokenChainError, MatrixChain, read_chain
from normgauge.certificates.facts.sample import DataSample
from normgauge.lab.zoo import mlp


def sample(*shape: int, count: int = 20, seed: int = 1) -> DataSample:
    torch.manual_seed(seed)
    return DataSample(torch.randn(count, *shape), torch.zeros(count, dtype=torch.long))


def lively(net: nn.Module, seed: int = 0) -> nn.Module:
    """In eval mode, its parameters and statistics at random."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn_like(p) * 0.4)
        for name, b in net.named_buffers():
            if b.is_floating_point():
                b.copy_(torch.rand_like(b) + 0.3 if "var" in name else torch.randn_like(b))
    return net.eval()


def truth(affine: nn.Module, shape: tuple[int, ...], *, constant: bool, last: bool) -> Tensor:
    """The matrix of an affine module, by unit vectors, in float64."""
    affine = copy.deepcopy(affine).double()
    n = math.prod(shape)
    with torch.no_grad():
        zero = affine(torch.zeros(1, *shape).double()).flatten(1)
        matrix = (affine(torch.eye(n).double().reshape(n, *shape)).flatten(1) - zero).T
    if not constant:
        return matrix
    whole = torch.cat([matrix, zero.T], 1)
    return whole if last else torch.cat([whole, torch.eye(n + 1)[-1:].double()])


class Pictures(nn.Module):
    def __init__(self, pool: str) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 9, 3)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = F.max_pool2d(x, 2) if self.pool == "max" else F.avg_pool2d(x, 2)
        return self.head(F.dropout(x, 0.5, self.training).flatten(1))


@pytest.mark.parametrize("pool", ["max", "average"])
def test_a_network_of_convolutions(pool: str) -> None:
    net = lively(Pictures(pool))
    chain = read_chain(net, sample(2, 6, 6))
    assert [link.name for link in chain.links] == ["conv", "head"]
    assert chain.elementwise is (pool == "average")
    first = truth(nn.Sequential(net.conv, net.norm), (2, 6, 6), constant=True, last=False)
    last = truth(net.head, (36,), constant=True, last=True)
    for link, matrix, exact in zip(chain.links, (first, last), (False, True), strict=True):
        assert (link.outputs, link.inputs) == tuple(matrix.shape)
        assert math.exp(link.log_frobenius) == pytest.approx(float(matrix.norm()), rel=1e-6)
        assert math.exp(link.log_rows) == pytest.approx(float(matrix.norm(dim=1).sum()), rel=1e-6)
        assert math.exp(link.log_row) == pytest.approx(float(matrix.norm(dim=1).max()), rel=1e-6)
        top = float(torch.linalg.matrix_norm(matrix, 2))
        assert top <= math.exp(link.log_spectral) <= top * (1.000001 if exact else 1.5)
    assert chain.links[0].weights == 4 * 2 * 9 + 4
    assert chain.links[0].units == 4 * 36 + (4 * 9 * 6 if pool == "max" else 0)  # 6 pairs in a window of 4
    assert chain.width == 4 * 36 + 1


def test_batch_norm_goes_into_the_layer_before_it_or_stands_alone() -> None:
    net = lively(mlp((5, 7, 6, 3), "batch"))
    assert [link.name for link in read_chain(net, sample(5)).links] == ["layers.0.linear", "layers.1.linear", "head"]
    first = nn.BatchNorm2d(2)
    alone = lively(nn.Sequential(first, nn.Flatten(), nn.Linear(18, 3)))
    chain = read_chain(alone, sample(2, 3, 3))
    matrix = truth(first, (2, 3, 3), constant=True, last=False)
    assert len(chain.links) == 2
    assert math.exp(chain.links[0].log_frobenius) == pytest.approx(float(matrix.norm()), rel=1e-6)
    top = float(torch.linalg.matrix_norm(matrix, 2))
    assert top <= math.exp(chain.links[0].log_spectral) <= 1.5 * top
    assert chain.links[0].weights == 4


def test_the_product_bounds_the_slope() -> None:
    net = lively(mlp((6, 8, 8, 4), "batch"))
    chain = read_chain(net, sample(6))
    for x in sample(6, seed=3).inputs.double():  # type: ignore[union-attr]
        slope = torch.autograd.functional.jacobian(lambda v: copy.deepcopy(net).double()(v[None])[0], x)
        assert float(torch.linalg.matrix_norm(slope, 2)) <= math.exp(chain.log_product)
    assert chain.log_product < chain.log_frobenius + math.log(4)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.inner(x))


class Looks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) if x.sum() > -1e9 else self.head(-x)


class Centred(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight - self.weight.mean(), self.bias)


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), 2)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 3, 3, stride=2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class Odd(nn.Linear):
    """Keeps the trace of a linear layer on few samples and is none."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sin()


BROKEN = {
    "layer norm": (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2)), (4,), "1 \\(LayerNorm\\)"),
    "gelu": (nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)), (4,), "1 \\(GELU\\)"),
    "steep leak": (nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(2.0), nn.Linear(4, 2)), (4,), "1 \\(LeakyReLU\\)"),
    "falling leak": (nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(-0.5), nn.Linear(4, 2)), (4,), "1 \\(LeakyReLU\\)"),
    "residual": (Residual(), (4,), "joins"),
    "branch": (Looks(), (4,), "control flow"),
    "softmax": (nn.Sequential(nn.Linear(4, 2), nn.Softmax(1)), (4,), "1 \\(Softmax\\)"),
    "relu at the end": (nn.Sequential(nn.Linear(4, 2), nn.ReLU()), (4,), "end with a linear"),
    "tokens": (nn.Sequential(nn.Linear(4, 2), nn.Flatten(), nn.Linear(6, 2)), (3, 4), "more than one vector"),
    "circular": (
        nn.Sequential(nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(6, 2)),
        (1, 6),
        "zero padding",
    ),
    "overlap": (nn.Sequential(nn.MaxPool1d(3, 1), nn.Flatten(), nn.Linear(4, 2)), (1, 6), "0 \\(MaxPool1d\\)"),
    "batch statistics": (
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)),
        (4,),
        "statistics of the batch",
    ),
    "attention": (nn.TransformerEncoderLayer(4, 1, 8, batch_first=True), (3, 4), "joins|is no"),
    "padded average": (
        nn.Sequential(nn.AvgPool1d(2, padding=1), nn.Flatten(), nn.Linear(4, 2)),
        (1, 6),
        "0 \\(AvgPool1d\\)",
    ),
    "no layer": (nn.Flatten(), (2, 3), "no linear layer"),
    "wrong size": (nn.Linear(5, 2), (4,), "could not be traced"),
    "constant": (Constant(), (4,), "does not come from one input|could not be traced"),
    "odd": (Odd(4, 2), (4,), "sin"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_chain_is_refused_by_name(name: str) -> None:
    net, shape, words = BROKEN[name]
    with pytest.raises(BrokenChainError, match=words):
        read_chain(net.eval(), sample(*shape))


def test_words_are_no_vectors() -> None:
    net = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 2)).eval()
    words = DataSample(torch.arange(30).reshape(10, 3) % 9, torch.zeros(10, dtype=torch.long))
    with pytest.raises(BrokenChainError, match="whole numbers"):
        read_chain(net, words)


def test_a_chain_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from normgauge.certificates.facts import chain

    net = lively(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    monkeypatch.setattr(chain, "AGREE", -1.0)
    with pytest.raises(BrokenChainError, match="do not give"):
        read_chain(net, sample(4))


def test_a_changed_weight_inside_forward_is_seen_as_it_runs() -> None:
    net = lively(Centred(4, 2))
    chain = read_chain(net, sample(4))
    matrix = net.weight.detach().double() - net.weight.detach().double().mean()
    whole = torch.cat([matrix, net.bias.detach().double()[:, None]], 1)
    assert math.exp(chain.links[0].log_frobenius) == pytest.approx(float(whole.norm()), rel=1e-6)


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.LeakyReLU(0.1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 2)),
        nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 2)),
        Pooled(),
    ],
    ids=["adaptive", "average", "flat", "mean"],
)
def test_pools_and_shapes_that_are_no_trouble(net: nn.Module) -> None:
    chain = read_chain(lively(net), sample(1, 6, 6))
    assert isinstance(chain, MatrixChain)
    assert chain.elementwise and chain.constant


def test_the_network_is_left_as_it_is() -> None:
    net = lively(mlp((5, 7, 3), "batch"))
    before = copy.deepcopy(net.state_dict())
    read_chain(net.train(), sample(5))
    assert net.training and all(m.training for m in net.modules())
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
