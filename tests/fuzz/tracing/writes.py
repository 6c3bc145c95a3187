"""Writing in place through views, and tensors exchanged under their names."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from tests.fuzz.tracing.trick import Told, Trick, trick


def written_rows(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, : max(1, y.shape[1] // 2)].mul_(7.0)
    return y


def written_transposed(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.T[0].mul_(7.0)
    y.t().add_(x.T)
    return y


def written_flat(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.view(-1)[::2] = 9.0 * x.reshape(-1)[::2]
    return y


def written_as_data(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.data.mul_(20.0)
    return y


def written_detached(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.detach().mul_(20.0)
    return y


def written_out(m: Any, x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    torch.mul(x, 20.0, out=y)
    return y


def written_strided(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.as_strided((y.numel(),), (1,)).mul_(6.0)
    return y


def written_masked(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y[x > 0] *= 8.0
    return y


def written_diagonal(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.diagonal().mul_(15.0)
    return y


def written_chunks(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    for i, part in enumerate(y.unbind(1)):
        part.mul_(1.0 + 3 * i)
    return y


def written_through_kept(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    kept = [y[0], y[:, 0]]
    y.mul_(4.0)
    kept[0] += x[0]
    return y + kept[1][:, None]


def written_to_buffer(m: Any, x: Tensor) -> Tensor:
    m.memory[: len(x)].copy_(x)
    m.memory.mul_(12.0)
    return m.memory[: len(x)] + x


def written_by_numpy(m: Any, x: Tensor) -> Tensor:
    y = (x * 1.0).detach()
    y.numpy()[:] *= 15.0
    return y


def written_by_foreach(m: Any, x: Tensor) -> Tensor:
    y, z = x * 1.0, x * 2.0
    torch._foreach_mul_([y, z], 9.0)
    return y + z


def written_swapaxes(m: Any, x: Tensor) -> Tensor:
    y = (x * 1.0).contiguous()
    y.t_()
    y.mul_(5.0)
    return y.t()


def written_by_index_add(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.index_add_(1, torch.zeros(x.shape[1], dtype=torch.long), x)
    return y


def written_by_scatter(m: Any, x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    return y.scatter_add_(1, torch.zeros(x.shape, dtype=torch.long), 3.0 * x)


def written_by_lerp(m: Any, x: Tensor) -> Tensor:
    y = x * 1.0
    y.lerp_(30.0 * x, 0.5)
    return y.addcmul_(x, torch.ones_like(x), value=2.0)


WRITES = [f for name, f in list(globals().items()) if name.startswith("written_")]


@trick
def written(rng: Random, width: int) -> Trick:
    function = rng.choice(WRITES)
    return Trick(Told(function.__name__, function, memory=torch.zeros(8, width, dtype=torch.float64)))


def data_set(m: Any, x: Tensor) -> Tensor:
    y = 1.0 * x
    y.data = 100 * x.data
    return y


def storage_set(m: Any, x: Tensor) -> Tensor:
    y = 1.0 * x.detach()
    y.set_(100 * x.detach())
    return y


def swapped(m: Any, x: Tensor) -> Tensor:
    y, z = 1.0 * x, 100.0 * x
    torch.utils.swap_tensors(y, z)
    return y


def weight_data(m: Any, x: Tensor) -> Tensor:
    w = m.layer.weight.data.clone()
    y = m.layer(x)
    m.layer.weight.data = 100 * w
    z = m.layer(y)
    m.layer.weight.data = w
    return z


def weight_in_place(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        m.layer.weight.mul_(50.0)
        y = m.layer(x)
        m.layer.weight.div_(50.0)
    return y


def weight_object(m: Any, x: Tensor) -> Tensor:
    old = m.layer.weight
    m.layer.weight = nn.Parameter(60 * old.detach())
    y = m.layer(x)
    m.layer.weight = old
    return y


def weight_called(m: Any, x: Tensor) -> Tensor:
    scaled = {"weight": 40 * m.layer.weight, "bias": m.layer.bias}
    return torch.func.functional_call(m.layer, scaled, (x,))


def weight_from_input(m: Any, x: Tensor) -> Tensor:
    scaled = {"weight": m.layer.weight * x.mean().tanh(), "bias": m.layer.bias}
    return torch.func.functional_call(m.layer, scaled, (x.tanh(),))


def weight_numpy(m: Any, x: Tensor) -> Tensor:
    array = m.layer.weight.detach().numpy()
    array *= 30.0
    y = m.layer(x)
    array /= 30.0
    return y


def layer_exchanged(m: Any, x: Tensor) -> Tensor:
    old, new = m.layer, nn.Linear(x.shape[1], x.shape[1]).to(x.dtype)
    new.load_state_dict({k: 25 * v for k, v in old.state_dict().items()})
    m.layer = new
    y = m.layer(x)
    m.layer = old
    return y


def buffer_exchanged(m: Any, x: Tensor) -> Tensor:
    y = x * m.scale
    m.scale = 80 * torch.ones_like(m.scale)
    return y * m.scale


EXCHANGES = [data_set, storage_set, swapped, weight_data, weight_in_place, weight_object, weight_called]
EXCHANGES += [weight_from_input, weight_numpy, layer_exchanged, buffer_exchanged]


@trick
def exchanged(rng: Random, width: int) -> Trick:
    function = rng.choice(EXCHANGES)
    scale = torch.ones(width, dtype=torch.float64)
    return Trick(Told(function.__name__, function, layer=nn.Linear(width, width), scale=scale))
