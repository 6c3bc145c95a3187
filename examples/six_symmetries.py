"""Six exact symmetries that fool a Lipschitz estimate.

One small network is trained on digits. Each symmetry then changes its weights by factors of up to 10,000 and leaves
every output as it is. P_w, the product of the spectral norms, follows the weights, and so does the bound that takes
the layers one by one; the balanced bound follows the function, where its search covers the symmetry. The last rows
show where it does not.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normgauge as ng
from normgauge.lab.training import model_accuracy, train
from normgauge.lab.zoo import digits


class Net(nn.Module):
    """BatchNorm, a ReLU pair, a residual stream, LayerNorm, attention over four tokens, LayerNorm again, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Linear(64, 32), nn.BatchNorm1d(32)
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 24)
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 24)
        self.mix, self.ln, self.proj = nn.Linear(24, 32), nn.LayerNorm(32), nn.Linear(32, 32)
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.last, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, 10) of images (N, 1, 8, 8)."""
        h = F.relu(self.bn(self.stem(x.flatten(1))))
        h = self.second(F.relu(self.first(h)))
        h = h + self.down(F.relu(self.up(h)))
        h = self.proj(self.ln(self.mix(h))).unflatten(1, (4, 8))
        h = self.out(F.scaled_dot_product_attention(self.query(h), self.key(h), self.value(h)))
        return self.head(self.last(h.flatten(1)))


def factors(count: int) -> Tensor:
    """Channel by channel, from 1 to 10,000."""
    return 10 ** (4 * torch.rand(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64))


def write(layer: nn.Linear, t: Tensor | float) -> None:
    """The layer's outputs times t."""
    layer.weight.mul_(t[:, None] if isinstance(t, Tensor) else t)
    layer.bias.mul_(t)


def read(layer: nn.Linear, t: Tensor | float) -> None:
    """The layer's inputs divided by t."""
    layer.weight.div_(t)


def batch_norm_scale(net: Net) -> None:
    """(W_c, b_c, mean_c) × t_c and var_c → t_c²(var_c + ε) − ε, so that √(var + ε) is multiplied by t_c exactly."""
    t = factors(32)
    write(net.stem, t)
    net.bn.running_mean.mul_(t)
    net.bn.running_var.copy_(t**2 * (net.bn.running_var + net.bn.eps) - net.bn.eps)


def relu_pair(net: Net) -> None:
    """relu(t·h) = t·relu(h)."""
    write(net.first, factors(32))
    read(net.second, factors(32))


def residual_stream(net: Net) -> None:
    """Everything that writes to the stream × t, everything that reads it ÷ t."""
    t = factors(24)
    for writer, reader in ((net.second, net.up), (net.down, net.mix)):
        write(writer, t)
        read(reader, t)


def layer_norm_shift(net: Net) -> None:
    """W → W + 1uᵀ, b → b + d: LayerNorm takes the mean away."""
    net.mix.weight.add_(factors(24))
    net.mix.bias.add_(1000.0)


def layer_norm_gain(net: Net, norm: str = "last", reader: str = "head") -> None:
    """Gain and shift of LayerNorm × t, the columns of the next linear map ÷ t."""
    t = factors(32)
    for part in net.get_submodule(norm).parameters():
        part.mul_(t)
    read(net.get_submodule(reader), t)


def query_key(net: Net) -> None:
    """q·k is the same when every query is multiplied by t and every key divided by it."""
    write(net.query, 1e4)
    write(net.key, 1e-4)


def query_key_channels(net: Net) -> None:
    """The same with a factor of its own for each channel."""
    write(net.query, factors(8))
    write(net.key, 1 / factors(8))


def value_out_channels(net: Net) -> None:
    """Values × t, the columns of the output map ÷ t."""
    write(net.value, factors(8))
    read(net.out, factors(8))


SYMMETRIES: dict[str, Callable[[Net], None]] = {
    "as trained": lambda net: None,
    "1 scale under BatchNorm": batch_norm_scale,
    "2 ReLU pair": relu_pair,
    "3 residual stream": residual_stream,
    "4 shift under LayerNorm": layer_norm_shift,
    "5 gain of LayerNorm": layer_norm_gain,
    "5 before attention": partial(layer_norm_gain, norm="ln", reader="proj"),
    "6 query and key": query_key,
    "6 channel by channel": query_key_channels,
    "6 value and output": value_out_channels,
}


NOT_COVERED = {"5 before attention", "6 channel by channel", "6 value and output"}


def trained() -> tuple[Net, Tensor]:
    """The network after ten passes over the digits, and fifty images it has not seen; both in float64."""
    torch.manual_seed(0)
    model = Net()
    train(model, digits("train"), epochs=10, lr=3e-3)
    print(f"test accuracy {100 * model_accuracy(model, digits('test')):.1f} %")
    return model.double().eval(), digits("test").inputs[:50].double()


def measure(net: Net, images: Tensor) -> tuple[float, float, float, float]:
    """P_w, the same times the normalizers' own constants, the folded and the balanced bound: log10, all inputs."""
    reading = ng.gauge(net, images, scope="global", search=False)
    folded, balanced = (value / math.log(10) for value in (reading.log_folded, reading.log_upper))
    return reading.published["log10_P_w"], reading.published["log10_theorem9"], folded, balanced


def table(model: Net, images: Tensor) -> None:
    """One row a symmetry, then how far each number moved."""
    before, rows = model(images), {}
    print(f"{'':26}outputs move by     P_w   with γ/σ  folded  balanced")
    for name, change in SYMMETRIES.items():
        twin = copy.deepcopy(model)
        change(twin)
        moved = float((twin(images) - before).abs().max() / before.abs().max())
        product, gains, folded, balanced = rows[name] = measure(twin, images)
        print(f"{name:26}{moved:15.1e} {product:7.2f} {gains:10.2f} {folded:7.2f} {balanced:9.4f}")
    for title, names in (("covered", set(SYMMETRIES) - NOT_COVERED), ("not covered", NOT_COVERED)):
        most = [max(abs(rows[name][k] - rows["as trained"][k]) for name in names) for k in (0, 2, 3)]
        print(f"{title}: P_w moves by up to {most[0]:.2f}, folded {most[1]:.2f}, balanced {most[2]:.4f} decades")


def main() -> None:
    """Train, then measure without gradients."""
    model, images = trained()
    with torch.no_grad():
        table(model, images)


if __name__ == "__main__":
    main()
