"""Layers measured by their equations: the tape runs these in the layer's place and checks that they agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import _VF, Tensor, nn

from normgauge.instrument.rules.recurrent import packed, padded, recurrent_cell, recurrent_layer
from normgauge.instrument.rules.registry import inherits_forward


def multihead_attention(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`nn.MultiheadAttention` by projections and one attention per head."""
    swap = module.batch_first and query.dim() == 3
    if swap:
        query, key, value = (t.transpose(0, 1) for t in (query, key, value))
    separate = not module._qkv_same_embed_dim
    out, weights = multihead_equations(
        query, key, value, module.embed_dim, module.num_heads, module.in_proj_weight, module.in_proj_bias,
        module.bias_k, module.bias_v, module.add_zero_attn, module.dropout,
        module.out_proj.weight, module.out_proj.bias, module.training, key_padding_mask, need_weights,
        attn_mask, separate,
        module.q_proj_weight, module.k_proj_weight, module.v_proj_weight, None, None, average_attn_weights, is_causal,
    )  # fmt: skip
    return (out.transpose(0, 1) if swap else out), weights


def multihead_equations(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward`: (length, batch, channels) in and out; the weights by a softmax of their own."""
    batched = query.dim() == 3
    if not batched:
        query, key, value = (t.unsqueeze(1) for t in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    matrices: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight and in_proj_weight is not None:
        matrices = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (F.linear(x, m, b) for x, m, b in zip((query, key, value), matrices, biases, strict=True))
    mask = merged_mask(attn_mask, key_padding_mask, batch, num_heads, out_proj_weight)
    if bias_k is not None and bias_v is not None:
        k, v = torch.cat([k, bias_k.expand(1, batch, -1)]), torch.cat([v, bias_v.expand(1, batch, -1)])
    q, k, v = (t.reshape(t.shape[0], batch, num_heads, -1).permute(1, 2, 0, 3) for t in (q, k, v))
    if static_k is not None:
        k = static_k.unflatten(0, (batch, num_heads))
    if static_v is not None:
        v = static_v.unflatten(0, (batch, num_heads))
    if add_zero_attn:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    if mask is not None and mask.shape[-1] < k.shape[2]:  # what was appended may always be attended to
        mask = F.pad(mask, (0, k.shape[2] - mask.shape[-1]))
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p if training else 0.0)
    out = F.linear(out.permute(2, 0, 1, 3).reshape(length, batch, width), out_proj_weight, out_proj_bias)
    weights = attention_weights(q, k, mask, average_attn_weights) if need_weights else None
    if not batched:
        out, weights = out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights


def merged_mask(
    attn_mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, like: Tensor
) -> Tensor | None:
    """Both masks as one to be added: (batch or 1, heads or 1, queries or 1, keys); True means "may not attend"."""
    if attn_mask is not None:
        per_head = attn_mask.dim() == 3
        attn_mask = attn_mask.reshape(batch, heads, *attn_mask.shape[1:]) if per_head else attn_mask[None, None]
    if padding is not None:
        padding = padding.reshape(batch, 1, 1, -1)
    added = [_to_be_added(mask, like) for mask in (attn_mask, padding) if mask is not None]
    return sum(added[1:], added[0]) if added else None


def _to_be_added(mask: Tensor, like: Tensor) -> Tensor:
    plain = mask.dtype != torch.bool
    return mask if plain else like.new_zeros(mask.shape).masked_fill(mask, float("-inf"))


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None, average: bool) -> Tensor:
    """softmax(q kᵀ/√d + mask), the mean over heads when asked for."""
    logits = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    weights = torch.softmax(logits if mask is None else logits + mask, -1)
    return weights.mean(1) if average else weights


EXPANSIONS: dict[Any, Callable[..., Any]] = {
    nn.MultiheadAttention: multihead_attention,
    F.multi_head_attention_forward: multihead_equations,
    **dict.fromkeys((nn.LSTM, nn.GRU, nn.RNN), recurrent_layer),
    **dict.fromkeys((nn.LSTMCell, nn.GRUCell, nn.RNNCell), recurrent_cell),
    _VF._pack_padded_sequence: packed,
    _VF._pad_packed_sequence: padded,
}


def expansion_of(target: Any) -> Callable[..., Any] | None:
    """The written-out form of a module type or function, or None."""
    if not (isinstance(target, type) and issubclass(target, nn.Module)):
        return EXPANSIONS.get(target)
    for ancestor in target.__mro__:
        if ancestor in EXPANSIONS:
            return EXPANSIONS[ancestor] if inherits_forward(target, ancestor) else None
    return None
