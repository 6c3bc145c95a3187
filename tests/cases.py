"""One case or more for every rule: what to build, what to feed it, and where its constant is attained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from normgauge.instrument.testing import is_factory

EVERYWHERE = ("global", "ball:0.1", "point")


@dataclass(frozen=True)
class RuleCase:
    rule: str
    make: Callable[..., Any]  # a factory of modules, or a function of one tensor
    inputs: tuple[int, ...] | Tensor
    attained: tuple[str, ...] = ()  # scopes in which a slope of at least 0.999 of the bound is found
    mode: str = "eval"

    def __str__(self) -> str:
        made = self.built()
        name = type(made).__name__ if isinstance(made, nn.Module) else getattr(made, "__name__", "function")
        return f"{self.rule}-{name.strip('<>')}-{self.mode}"

    def built(self) -> Callable[..., Any]:
        """The module, or the function itself."""
        return self.make() if is_factory(self.make) else self.make


def weight(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def peak(*shape: int) -> Tensor:
    """A lone peak in the middle: it wins every window it is in."""
    x = 1e-3 * weight(*shape)
    x[(0, 0, *(n // 2 for n in shape[2:]))] = 1.0
    return x


def statistics(layer: nn.Module) -> nn.Module:
    """A normalizer that has learnt something."""
    for name, tensor in (*layer.named_parameters(), *layer.named_buffers()):
        if tensor.is_floating_point():
            tensor.data = weight(*tensor.shape).abs() + 0.3 if "var" in name else weight(*tensor.shape)
    return layer


def at(value: float, *shape: int) -> Tensor:
    """A constant input: where an activation is steepest."""
    return torch.full(shape, value, dtype=torch.float64)


LINEAR = [
    RuleCase("affine.linear", lambda: nn.Linear(4, 3), (2, 4), EVERYWHERE),
    RuleCase("affine.linear", lambda x: F.linear(x, weight(3, 4)), (2, 4), EVERYWHERE),
    RuleCase("affine.bilinear", lambda x: F.bilinear(x.tanh(), x.sigmoid(), weight(3, 4, 4)), (2, 4)),
    RuleCase("affine.bilinear", lambda x: F.bilinear(x, weight(2, 3), weight(2, 4, 3)), (2, 4)),
    RuleCase("conv.convolution", lambda: nn.Conv2d(2, 3, 3, 2, 1), (2, 2, 5, 5), EVERYWHERE),
    RuleCase(
        "conv.convolution",
        lambda: nn.Conv1d(4, 4, 2, groups=2, dilation=2, padding_mode="circular", padding=1),
        (1, 4, 6),
        EVERYWHERE,
    ),
    RuleCase("conv.convolution", lambda: nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), (1, 2, 3, 3), EVERYWHERE),
    RuleCase("conv.convolution", lambda x: F.conv1d(x, weight(3, 2, 2)), (2, 2, 5), EVERYWHERE),
    RuleCase("projection.matmul", lambda x: x @ weight(4, 3), (2, 4), EVERYWHERE),
    RuleCase("projection.matmul", lambda x: x.tanh() @ x.sigmoid().mT, (2, 3, 4)),
    RuleCase(
        "projection.add_product",
        lambda x: torch.addmm(weight(3), x, weight(4, 3), beta=2, alpha=0.5),
        (2, 4),
        EVERYWHERE,
    ),
    RuleCase("projection.einsum", lambda x: torch.einsum("nij,jk->nki", x, weight(4, 3)), (2, 2, 4), EVERYWHERE),
    RuleCase("projection.cumsum", lambda x: x.cumsum(1), (2, 5), EVERYWHERE),
]
NORMALIZERS = [
    RuleCase("norm_batch.batch_norm", lambda: statistics(nn.BatchNorm1d(3)), (4, 3), EVERYWHERE),
    RuleCase("norm_batch.batch_norm", lambda: nn.BatchNorm2d(3), (2, 3, 2, 2), ("global", "point"), "train"),
    RuleCase(
        "norm_batch.batch_norm",
        lambda x: F.batch_norm(x, weight(3), weight(3) ** 2 + 0.1, weight(3)),
        (4, 3),
        EVERYWHERE,
    ),
    RuleCase(
        "norm_batch.batch_norm",
        lambda x: F.batch_norm(x, None, None, training=True),
        (5, 3),
        ("global", "point"),
    ),
    RuleCase("norm_layer.layer_norm", lambda: nn.LayerNorm(6), (2, 6), ("global", "point")),
    RuleCase("norm_layer.layer_norm", lambda: statistics(nn.LayerNorm((3, 4))), (2, 3, 4)),
    RuleCase("norm_layer.layer_norm", lambda x: F.layer_norm(x, (6,), eps=0.1), (2, 6), ("global", "point")),
    RuleCase("norm_layer.rms_norm", lambda: nn.RMSNorm(6, eps=1e-3), (2, 6), ("global", "point")),
    RuleCase("norm_layer.rms_norm", lambda x: F.rms_norm(x, (6,), weight(6)), (2, 6)),
    RuleCase("norm_layer.group_norm", lambda: nn.GroupNorm(2, 4), (2, 4, 3), ("global", "point")),
    RuleCase("norm_layer.group_norm", lambda x: F.group_norm(x, 2, weight(6)), (2, 6)),
    RuleCase("norm_layer.instance_norm", lambda: nn.InstanceNorm1d(3), (2, 3, 5), ("global", "point")),
    RuleCase(
        "norm_layer.instance_norm",
        lambda: statistics(nn.InstanceNorm1d(3, affine=True, track_running_stats=True)),
        (2, 3, 5),
        EVERYWHERE,
    ),
    RuleCase("norm_layer.instance_norm", lambda x: F.instance_norm(x), (2, 3, 5), ("global", "point")),
    RuleCase("norm_layer.local_response_norm", lambda: nn.LocalResponseNorm(2, alpha=1.0), (2, 4, 3)),
    RuleCase("norm_layer.local_response_norm", lambda x: F.local_response_norm(x, 3), (2, 4, 3)),
    RuleCase("norm_layer.normalize", lambda x: F.normalize(x, dim=1, eps=0.1), (2, 4), ("global", "point")),
    RuleCase(
        "recognise.written_out_norm",
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3),
        (2, 6),
        ("global", "point"),
    ),
    RuleCase("recognise.written_out_gate", lambda x: x * torch.sigmoid(1.702 * x), (2, 6)),
]
ACTIVATIONS = [
    *(
        RuleCase("activation.activation", f, (2, 3), ("global",))
        for f in (F.relu, F.leaky_relu, F.elu, torch.tanh, F.softsign, F.celu, F.selu)
    ),
    RuleCase("activation.activation", lambda: nn.SiLU(), at(2.399357, 1, 3), EVERYWHERE),
    RuleCase("activation.activation", lambda: nn.GELU(), at(1.414214, 1, 3), EVERYWHERE),
    RuleCase("activation.activation", lambda: nn.Sigmoid(), at(0.0, 1, 3), EVERYWHERE),
    RuleCase("activation.activation", lambda: nn.PReLU(3), (2, 3)),
    RuleCase("activation.activation", lambda: nn.RReLU(0.5, 2.0), (2, 3), mode="train"),
    RuleCase("activation.clamp", lambda x: x.clamp(-0.5, 0.7), at(0.1, 2, 3), EVERYWHERE),
    RuleCase("activation.clamp", lambda: nn.Hardtanh(-2, 3), at(0.1, 2, 3), EVERYWHERE),
    RuleCase("activation.clamp", lambda x: torch.clamp(x, min=x.mean(1, keepdim=True)), (2, 4)),
    RuleCase("activation.maximum", lambda x: torch.maximum(x, -0.5 * x), (2, 4)),
    RuleCase(
        "activation.maximum", lambda x: torch.minimum(x.mean(1, keepdim=True), weight(4)), at(-9.0, 2, 4), EVERYWHERE
    ),
    RuleCase("activation.jump", lambda x: torch.round(x), (2, 3)),
    RuleCase("activation.jump", lambda: nn.Threshold(0.3, 0.3), at(2.0, 2, 3), EVERYWHERE),
    RuleCase("activation.exponential", lambda x: x.exp(), (1, 3), ("point",)),
    RuleCase("activation.steep_at_zero", lambda x: (x.sigmoid() + x.flip(1).sigmoid() + 0.5).log(), (2, 3)),
    RuleCase("activation.steep_at_zero", lambda x: x.sqrt(), at(2.0, 2, 3), ("point",)),
    RuleCase("activation.log_of_one_more", lambda x: x.log1p(), at(2.0, 2, 3), ("point",)),
    RuleCase("activation.log_of_one_more", lambda x: x.abs().flip(1).log1p(), (2, 3)),
    RuleCase("activation.power", lambda x: x.square(), (1, 3), ("point",)),
    RuleCase("activation.power", lambda x: x.tanh().flip(1) ** 3, (2, 3)),
    RuleCase("activation.modulus", lambda x: -x.abs(), (2, 3), EVERYWHERE),
    RuleCase("activation.modulus", lambda x: (x * torch.tensor(3 + 4j)).abs(), (2, 3), EVERYWHERE),
    RuleCase("fourier.transform", lambda x: torch.fft.fft(x).real, (2, 5)),
    RuleCase("fourier.transform", lambda x: torch.fft.irfft(torch.fft.rfft(x)), (2, 6)),
    RuleCase("fourier.transform", lambda x: torch.view_as_real(torch.fft.fft2(x, norm="ortho")), (2, 3, 4), EVERYWHERE),
    RuleCase(
        "fourier.part",
        lambda x: torch.view_as_real(torch.view_as_complex(x).conj().resolve_conj()),
        (2, 3, 2),
        EVERYWHERE,
    ),
    RuleCase("scalar.scalar_function", lambda x: x / (1 + x * x), at(0.0, 2, 3), EVERYWHERE),
    RuleCase("scalar.scalar_function", lambda x: torch.log(1 + x.exp()), (2, 3), ("global",)),
    RuleCase("scalar.scalar_function", lambda x: torch.exp(-0.5 * (x - 0.3).square().sum(-1)), (2, 3)),
    RuleCase(
        "response.response",
        lambda x: x * (x.norm(dim=1, keepdim=True) / (x.norm(dim=1, keepdim=True).mean(-1, keepdim=True) + 1e-6)),
        (2, 3, 4),
    ),
    RuleCase("softmax.softmax", lambda: nn.Softmax(1), at(0.3, 2, 2), EVERYWHERE),
    RuleCase("softmax.softmax", lambda x: F.softmin(x, -1), (2, 5)),
    RuleCase("softmax.log_softmax", lambda: nn.LogSoftmax(1), 30 * weight(2, 4), ("global",)),
    RuleCase("softmax.log_softmax", lambda x: F.log_softmax(x, 1), (2, 4), ("point",)),
    RuleCase("softmax.logsumexp", lambda x: x.logsumexp(1), 30 * weight(2, 4), ("global",)),
    RuleCase("softmax.glu", lambda: nn.GLU(1), (2, 4)),
    RuleCase("stochastic.dropout", lambda: nn.Dropout(0.4), (3, 5), EVERYWHERE, "train"),
    RuleCase("stochastic.dropout", lambda: nn.Dropout2d(0.4), (3, 2, 2, 2), EVERYWHERE),
    RuleCase("stochastic.alpha_dropout", lambda: nn.AlphaDropout(0.4), (3, 5), EVERYWHERE, "train"),
    RuleCase("attention.attention", lambda x: F.scaled_dot_product_attention(x, 2 * x, x), (2, 3, 4)),
    RuleCase(
        "attention.attention", lambda x: F.scaled_dot_product_attention(x.tanh(), x.sin(), x, is_causal=True), (1, 3, 2)
    ),
    RuleCase("embedding.embedding", lambda x: F.embedding(x.argmax(-1), weight(4, 3)), (2, 4)),
]
COMBINATIONS = [
    RuleCase("combine.add", lambda x: x + x.roll(0, 1), (2, 3), EVERYWHERE),
    RuleCase("combine.add", lambda x: torch.sub(x, x.mean(1, keepdim=True), alpha=-2.0), (2, 3)),
    RuleCase("combine.add", lambda x: torch.rsub(x, weight(3), alpha=3.0), (2, 3), EVERYWHERE),
    RuleCase("combine.multiply", lambda x: x * weight(2, 3), (2, 3), EVERYWHERE),
    RuleCase("combine.multiply", lambda x: x.tanh() * x.sigmoid().mean(1, keepdim=True), (2, 3)),
    RuleCase("combine.divide", lambda x: x / weight(3), (2, 3), EVERYWHERE),
    RuleCase("combine.divide", lambda x: x.tanh() / (1 + x.flip(1).sigmoid()), (2, 3)),
    RuleCase("combine.divide", lambda x: torch.div(x, 0.3, rounding_mode="floor"), (2, 3)),
    RuleCase("combine.reduce_linear", lambda x: x.mean((1, 2)), (2, 3, 2), EVERYWHERE),
    RuleCase("combine.reduce_linear", lambda x: x.sum(-1), (2, 3), EVERYWHERE),
    RuleCase("combine.reduce_extreme", lambda x: x.amax(1), (2, 3), EVERYWHERE),
    RuleCase("combine.reduce_extreme", lambda x: torch.max(x.mean(1, keepdim=True), x), (2, 3)),
    RuleCase("combine.reduce_length", lambda x: torch.linalg.norm(x, dim=1), (2, 3), EVERYWHERE),
    RuleCase("combine.reduce_length", lambda x: x.std(1), (2, 3), EVERYWHERE),
    RuleCase("shape.copy", lambda x: torch.cat([x, x.flip(1)], 1), (2, 3), EVERYWHERE),
    RuleCase("shape.copy", lambda: nn.ReplicationPad1d(2), (2, 2, 3), EVERYWHERE),
    RuleCase("shape.copy", lambda x: x[:, :, None].expand(2, 3, 4).transpose(1, 2), (2, 3), EVERYWHERE),
    RuleCase("pooling.max_pool", lambda: nn.MaxPool2d(3, 2, 1), peak(1, 1, 5, 5), ("global",)),
    RuleCase("pooling.max_pool", lambda x: F.max_pool1d(x, 3, 1), peak(1, 1, 7), EVERYWHERE),
    RuleCase("pooling.adaptive_max_pool", lambda: nn.AdaptiveMaxPool1d(2), peak(1, 1, 5), EVERYWHERE),
    RuleCase("pooling.lp_pool", lambda: nn.LPPool1d(2, 3, 1), peak(1, 1, 7)),
    RuleCase("pooling.avg_pool", lambda: nn.AvgPool2d(3, 2, 1), (1, 2, 5, 5), EVERYWHERE),
    RuleCase("pooling.avg_pool", lambda x: F.adaptive_avg_pool1d(x, 3), (2, 2, 5), EVERYWHERE),
    RuleCase("pooling.interpolate", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 3), EVERYWHERE),
    RuleCase("pooling.fold", lambda: nn.Fold((4, 4), 2), (1, 4, 9), EVERYWHERE),
]  # fmt: skip
CASES = [*LINEAR, *NORMALIZERS, *ACTIVATIONS, *COMBINATIONS]
