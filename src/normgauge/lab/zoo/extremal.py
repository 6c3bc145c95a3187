"""Networks whose Lipschitz constants are known exactly: scaled truncated identities between ReLUs.

h_k = ReLU(NO_k(a_k I_k h_{k−1})) with I_k the n_k × n_{k−1} identity, cut off or padded with zeros. Nothing mixes the
channels, so the constants in the input and in each weight matrix, that of the ℓ1 loss and the gradient have closed
forms, with and without normalizers. They serve as truth for tests and as worst cases for the theory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.lab.zoo.parts import NormFactory

NORMS = ("batch", "layer", "rms")


class ExtremalLayer(nn.Module):
    """ReLU(NO(a I x)); ``norm`` is an Identity where there is none."""

    def __init__(self, gain: float, inputs: int, outputs: int, norm: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False, dtype=dtype)  # at once: 0.7 must not pass float32
        self.norm = norm
        self.act = nn.ReLU()
        with torch.no_grad():
            nn.init.eye_(self.linear.weight).mul_(gain)

    @property
    def gain(self) -> float:
        """The gain a of W = a I, while the weight is the one it was built with."""
        return float(self.linear.weight.detach()[0, 0])

    @property
    def slopes(self) -> Tensor:
        """The normalizer's slope by channel; for those of single samples the supremum over all inputs."""
        ones = torch.ones_like(self.linear.weight[:, 0])
        if isinstance(self.norm, nn.BatchNorm1d) and self.norm.running_var is not None:
            return (self.norm.running_var + self.norm.eps).rsqrt()
        if isinstance(self.norm, nn.LayerNorm | nn.RMSNorm) and self.norm.eps is not None:
            return ones / math.sqrt(self.norm.eps)
        return ones

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to ``x``, (m, inputs)."""
        return self.act(self.norm(self.linear(x)))


def extremal(
    gains: Sequence[float],
    widths: Sequence[int],
    norm: str | None = None,
    *,
    batch: Tensor | None = None,
    eps: float = 1e-5,
    dtype: torch.dtype = torch.float64,
) -> nn.Sequential:
    """Build the network with W_k = a_k I_k.

    Without a normalizer it has the largest constant its spectral norms allow, Πa_k; `input_constant` and the other
    functions of this file say what it is with one.

    Args:
        gains: a_1, ..., a_K, none negative.
        widths: n_0, ..., n_K: the input and every layer.
        norm: None, "batch" (running statistics of ``batch``), "layer" or "rms"; none has a gain or a bias.
        batch: inputs (m, n_0) whose statistics, layer by layer, the batch normalizers hold; only with "batch".
        eps: eps of the normalizers.
        dtype: dtype of the weights.

    Returns:
        The network in eval mode: layers ``{k}.{linear,norm,act}``, counted from 0, the linear maps without biases.

    Raises:
        InputError: if the numbers do not make a network or the normalizer is not known.

    >>> net = extremal((2.0, 0.5, 3.0), (4, 5, 2, 3))
    >>> net(torch.tensor([[1.0, 2.0, 3.0, -4.0]], dtype=torch.float64)).tolist()
    [[3.0, 6.0, 0.0]]
    """
    _refuse(gains, widths, norm, batch, eps)
    pairs = zip(gains, pairwise(widths), strict=True)
    layers = [
        ExtremalLayer(gain, *pair, NormFactory(norm, "vector", False, eps)(pair[1]), dtype) for gain, pair in pairs
    ]
    net = nn.Sequential(*layers).to(dtype).eval()
    if batch is not None:
        _hold_statistics(layers, batch.to(dtype))
    return net


def input_constant(net: nn.Sequential) -> float:
    """The Lipschitz constant of the network in its input, over all inputs.

    none: Πa_k;  batch: max_j Π_k a_k/√(var_kj + ε) over the channels j that pass every layer;
    layer, rms: Πa_k·ε^(−K/2), the supremum, approached where every variance goes to zero

    Holds:  for networks of `extremal`.
    Source: the Jacobian is diagonal where the ReLUs are on (Than 2025, Theorem 6).
    Claim:  T.T6

    Args:
        net: a network of `extremal`.

    Returns:
        The constant.

    >>> input_constant(extremal((2.0, 0.5, 3.0), (4, 5, 2, 3)))
    3.0
    >>> input_constant(extremal((2.0, 0.5, 3.0), (4, 5, 4, 3), "layer", eps=0.01))
    3000.0
    """
    layers = _layers(net, 1)
    return layers[0].gain * float(_tail(layers)[: layers[0].linear.in_features].max())


def weight_constant(net: nn.Sequential, layer: int, x: Tensor) -> float:
    """The Lipschitz constant of W_i ↦ h(x) in the Frobenius norm, over all W_i.

    ‖h_{i−1}(x)‖·max_j (s_ij Π_{k>i} a_k s_kj),  s the normalizers' 1/√(var + ε) (1 without; 1/√ε for layer, rms)

    Holds:  for networks of `extremal`; W_i, and the layers before it, may be anything. Full norm, not truncated.
    Source: W_i ↦ W_i h has norm ‖h‖, and the layers after it are diagonal.
    Claim:  T.T13.8

    Args:
        net: a network of `extremal`.
        layer: i, counted from 1.
        x: one input (n_0,).

    Returns:
        The constant.

    >>> net = extremal((2.0, 3.0), (2, 1, 1))
    >>> weight_constant(net, 1, torch.tensor([0.0, 1.0]))
    3.0
    """
    return float(_entering(net, layer, x).norm() * _tail(_layers(net, layer)).max())


def loss_constant(net: nn.Sequential, layer: int, x: Tensor) -> float:
    """The Lipschitz constant of W_i ↦ ‖target − h(x)‖₁, over all W_i.

    ‖h_{i−1}(x)‖·√(Σ_j (s_ij Π_{k>i} a_k s_kj)²) over j ≤ min(n_i, ..., n_K);
    without a normalizer √min(n_i, ..., n_K)·Π_{k>i}a_k·‖h_{i−1}(x)‖

    Holds:  as `weight_constant`; for targets that no output reaches. Not for layer normalization, whose ReLUs are never
            all on: no closed form is known.
    Source: each passing row has the same gradient up to a sign, times its own gain.
    Claim:  T.C14.11

    Args:
        net: a network of `extremal`.
        layer: i, counted from 1.
        x: one input (n_0,).

    Returns:
        The constant.

    Raises:
        InputError: if the network has layer normalizers.

    >>> net = extremal((2.0, 3.0), (2, 4, 4))
    >>> loss_constant(net, 1, torch.tensor([0.0, 1.0]))
    6.0
    """
    layers = _layers(net, layer)
    if any(isinstance(part.norm, nn.LayerNorm) for part in layers):
        raise InputError("the ℓ1 constant has no closed form behind LayerNorm; use norm=None, 'batch' or 'rms'.")
    return float(_entering(net, layer, x).norm() * _tail(layers).norm())


@torch.no_grad()
def weight_gradient(net: nn.Sequential, layer: int, x: Tensor, slope: Tensor, head: float = 1.0) -> Tensor:
    """The gradient of (1/m) Σ_x f(g(u(x))), u = c·1ᵀh_K(x), in W_i.

    row t:  (c·s_it Π_{k>i} a_k s_kt/m)·Σ_x 1[channel t is on]·(f∘g)'(u(x))·h_{i−1}(x)ᵀ,
    zero for t > min(n_i, ..., n_K)

    Holds:  for networks of `extremal` with frozen statistics or none; W_i, and the layers before it, may be anything. A
            channel is on where the argument of every ReLU from layer i on is > 0: torch takes ReLU'(0) = 0.
    Source: chain rule (Than 2025, Theorem 15).
    Claim:  T.T15

    Args:
        net: a network of `extremal`.
        layer: i, counted from 1.
        x: inputs (m, n_0).
        slope: (f∘g)'(u(x)) of each of them, (m,).
        head: c.

    Returns:
        The gradient, of the shape of W_i.

    Raises:
        InputError: if the network has layer or rms normalizers, which mix the channels.

    >>> net = extremal((2.0, 3.0), (2, 2, 1))
    >>> weight_gradient(net, 1, torch.tensor([[1.0, 2.0]]), torch.tensor([1.0])).tolist()
    [[3.0, 6.0], [0.0, 0.0]]
    """
    layers = _layers(net, layer)
    if any(isinstance(part.norm, nn.LayerNorm | nn.RMSNorm) for part in layers):
        raise InputError("the gradient has a closed form for norm=None and 'batch' only; the others mix the channels.")
    entering, tail = _entering(net, layer, x), _tail(layers)
    on, value = torch.ones(len(entering), len(tail), dtype=torch.bool), entering
    for part in layers:
        value = part(value)
        on &= value[:, : len(tail)] > 0
    rows = (on * slope[:, None]).to(entering).T @ entering / len(entering)
    gradient = torch.zeros_like(layers[0].linear.weight)
    gradient[: len(tail)] = head * tail[:, None] * rows
    return gradient


def _refuse(gains: Sequence[float], widths: Sequence[int], norm: str | None, batch: Tensor | None, eps: float) -> None:
    if not gains or len(widths) != len(gains) + 1 or min(widths) < 1:
        raise InputError(
            f"K gains need K + 1 positive widths, the input's first; got {len(gains)} gains and widths {tuple(widths)}."
        )
    shaped = batch is None or (batch.ndim == 2 and batch.shape[1] == widths[0] and len(batch) > 1)
    wide = norm != "layer" or min(widths) >= 3
    for fine, said in (
        (all(0 <= gain < math.inf for gain in gains), f"gains must be finite and not negative; got {tuple(gains)}."),
        (norm in (None, *NORMS), f"no normalizer called {norm!r}; known: {', '.join(NORMS)} and None."),
        (norm is None or eps > 0, f"eps must be positive, or the constants are infinite; got {eps}."),
        (wide, f"layer normalization needs widths of 3 or more for a closed form; got {tuple(widths)}."),
        (
            (batch is not None) == (norm == "batch"),
            f"norm='batch' needs batch=, and only that; got norm={norm!r} and batch={_shape(batch)}.",
        ),
        (shaped, f"batch must be (m, {widths[0]}) with m > 1, to have statistics; got {_shape(batch)}."),
    ):
        if not fine:
            raise InputError(said)


def _shape(batch: Tensor | None) -> str:
    return "None" if batch is None else str(tuple(batch.shape))


@torch.no_grad()
def _hold_statistics(layers: Sequence[ExtremalLayer], value: Tensor) -> None:
    """The population statistics of ``value``, layer by layer: each is taken behind the normalizers before it."""
    for layer in layers:
        before = layer.linear(value)
        layer.norm.get_buffer("running_mean").copy_(before.mean(0))
        layer.norm.get_buffer("running_var").copy_(before.var(0, unbiased=False))
        value = layer(value)


def _layers(net: nn.Sequential, layer: int) -> list[ExtremalLayer]:
    """The layers from ``layer`` on, counted from 1.

    Raises:
        InputError: if there is no such layer or the network is another one.
    """
    layers = [part for part in net if isinstance(part, ExtremalLayer)]
    if len(layers) != len(net) or not layers:
        raise InputError(f"expected a network of `extremal`; got {type(net).__name__} with other layers.")
    if not 1 <= layer <= len(layers):
        raise InputError(f"layer must be 1 to {len(layers)}; got {layer}.")
    return layers[layer - 1 :]


@torch.no_grad()
def _tail(layers: Sequence[ExtremalLayer]) -> Tensor:
    """s_ij Π_{k>i} a_k s_kj for the channels j that pass the layers from i on; W_i itself takes no part."""
    passing = min(layer.linear.out_features for layer in layers)
    tail = layers[0].slopes[:passing]
    for layer in layers[1:]:
        tail = tail * layer.gain * layer.slopes[:passing]
    return tail


@torch.no_grad()
def _entering(net: nn.Sequential, layer: int, x: Tensor) -> Tensor:
    """h_{i−1}(x), what W_i is multiplied with."""
    value = x.to(_layers(net, layer)[0].linear.weight.dtype)
    # the normalizers take batches only
    entering: Tensor = net[: layer - 1](value if value.ndim > 1 else value[None])
    return entering if value.ndim > 1 else entering[0]
