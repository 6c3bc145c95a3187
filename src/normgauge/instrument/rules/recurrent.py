"""Recurrent layers by their cell equations, step by step in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State, Tensor, Tensor | None], State]


def lstm_equations(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """c' = σ(f)·c + σ(i)·tanh(g),  h' = σ(o)·tanh(c');  |c| grows by at most 1 a step."""
    h, c = state
    i, f, g, o = (gates + F.linear(h, weight, bias)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru_equations(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """n = tanh(W x + r·(U h + b)),  h' = (1 − z)·n + z·h."""
    (h,) = state
    own_r, own_z, own_n = F.linear(h, weight, bias).chunk(3, -1)
    r, z, n = gates.chunk(3, -1)
    r, z = torch.sigmoid(r + own_r), torch.sigmoid(z + own_z)
    n = torch.tanh(n + r * own_n)
    return ((1 - z) * n + z * h,)


def plain_equations(nonlinearity: str) -> Cell:
    """h' = φ(W x + U h + b)."""
    function = torch.tanh if nonlinearity == "tanh" else torch.relu

    def cell(gates: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
        return (function(gates + F.linear(state[0], weight, bias)),)

    return cell


def layered(
    module: nn.RNNBase, cell: Cell, x: Tensor, sizes: list[int] | None, state: State | None, memory: bool
) -> tuple[Tensor, State]:
    """Outputs and final states of all layers; x is (length, batch, width), or rows with ``sizes`` of them a moment."""
    directions = 2 if module.bidirectional else 1
    last: list[State] = []
    for layer in range(module.num_layers):
        sides = []
        for side in range(directions):
            place = layer * directions + side
            start = None if state is None else tuple(s[place] for s in state)
            out, end = one_direction(module, cell, x, sizes, start, f"l{layer}{'_reverse' if side else ''}", memory)
            sides.append(out)
            last.append(end)
        x = sides[0] if directions == 1 else torch.cat(sides, -1)
        if module.dropout and module.training and layer < module.num_layers - 1:
            x = F.dropout(x, module.dropout, True)
    return x, tuple(torch.stack(parts) for parts in zip(*last, strict=True))


def one_direction(
    module: nn.RNNBase,
    cell: Cell,
    x: Tensor,
    sizes: list[int] | None,
    state: State | None,
    suffix: str,
    memory: bool,
) -> tuple[Tensor, State]:
    """Outputs and final state of one layer in one direction; a sequence keeps its state when it is not running."""

    def part(name: str) -> Any:
        return getattr(module, f"{name}_{suffix}", None)

    own, bias_own = part("weight_hh"), part("bias_hh")
    project = part("weight_hr") if module.proj_size else None
    gates = F.linear(x, part("weight_ih"), part("bias_ih"))
    moments = gates if sizes is None else gates.split(sizes)
    if state is None:
        batch = moments[0].shape[0]
        zero = torch.zeros(batch, module.proj_size or module.hidden_size, dtype=x.dtype, device=x.device)
        state = (zero, torch.zeros(batch, module.hidden_size, dtype=x.dtype, device=x.device)) if memory else (zero,)
    outputs: list[Tensor] = []
    order = range(len(moments))
    for t in reversed(order) if suffix.endswith("reverse") else order:
        count = moments[t].shape[0]
        going = state if count == state[0].shape[0] else tuple(s[:count] for s in state)
        after = cell(moments[t], going, own, bias_own)
        if project is not None:
            after = (F.linear(after[0], project), *after[1:])
        outputs.append(after[0])
        state = after if going is state else tuple(torch.cat([a, s[count:]]) for a, s in zip(after, state, strict=True))
    if suffix.endswith("reverse"):
        outputs.reverse()
    return (torch.stack(outputs) if sizes is None else torch.cat(outputs)), state


def packed(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """`pack_padded_sequence` of sequences sorted by length: what is left of them at each moment, one after another."""
    x = input.transpose(0, 1) if batch_first else input
    sizes = [sum(n > t for n in lengths.tolist()) for t in range(int(lengths.max()))]
    return torch.cat([x[t, :n] for t, n in enumerate(sizes)]), torch.tensor(sizes)


def padded(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor]:
    """`pad_packed_sequence` of sequences sorted by length."""
    sizes = batch_sizes.tolist()
    rest = [0, 0] * (data.ndim - 1)
    moments = [F.pad(rows, (*rest, 0, sizes[0] - len(rows)), value=padding_value) for rows in data.split(sizes)]
    moments += [torch.full_like(moments[0], padding_value)] * (total_length - len(sizes))
    out = torch.stack(moments)
    lengths = torch.tensor([sum(n > i for n in sizes) for i in range(sizes[0])])
    return (out.transpose(0, 1) if batch_first else out), lengths


def equations_of(module: nn.Module) -> tuple[Cell, int]:
    """The equations of a recurrent layer or cell, and how many states it carries: a memory beside the hidden one."""
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        return lstm_equations, 2
    if isinstance(module, nn.GRU | nn.GRUCell):
        return gru_equations, 1
    return plain_equations(str(module.nonlinearity)), 1


def recurrent_layer(module: nn.RNNBase, input: Tensor | PackedSequence, hx: Any = None) -> tuple[Any, Any]:
    """`nn.LSTM`, `nn.GRU` and `nn.RNN` on a batch, one sequence, or sequences of several lengths packed into one.

    States have the shape (layers·directions, batch, width); they begin at zero unless given.

    Returns:
        The outputs and the final states.
    """
    cell, count = equations_of(module)
    state: State | None = hx if hx is None or count > 1 else (hx,)
    out: Any
    if isinstance(input, PackedSequence):
        data, sizes, order, back = input
        start = state if state is None or order is None else tuple(s.index_select(1, order) for s in state)
        out, final = layered(module, cell, data, sizes.tolist(), start, count > 1)
        out = PackedSequence(out, sizes, order, back)
        final = final if back is None else tuple(s.index_select(1, back) for s in final)
    elif input.dim() == 3:
        out, final = layered(
            module, cell, input.transpose(0, 1) if module.batch_first else input, None, state, count > 1
        )
        out = out.transpose(0, 1) if module.batch_first else out
    else:
        state = None if state is None else tuple(s.unsqueeze(1) for s in state)
        out, final = layered(module, cell, input.unsqueeze(1), None, state, count > 1)
        out, final = out.squeeze(1), tuple(s.squeeze(1) for s in final)
    return out, final if count > 1 else final[0]


def recurrent_cell(module: nn.RNNCellBase, input: Tensor, hx: Any = None) -> Any:
    """`nn.LSTMCell`, `nn.GRUCell` and `nn.RNNCell`."""
    cell, count = equations_of(module)
    zero = torch.zeros(*input.shape[:-1], module.hidden_size, dtype=input.dtype, device=input.device)
    state = (zero,) * count if hx is None else tuple(hx) if count > 1 else (hx,)
    gates = F.linear(input, module.weight_ih, module.bias_ih)
    after = cell(gates, state, module.weight_hh, module.bias_hh)
    return after if count > 1 else after[0]
