"""The networks of benchmarks/symmetries.py, with batches that are large enough to tell their weights apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from symmetric_nets import (
    Attending,
    Bag,
    Case,
    Dense,
    Einsum,
    Functional,
    Gate,
    Grouped,
    Looped,
    Recurrent,
    Residual,
    Scaled,
    Standardized,
    TiedDecoder,
    TinyResNet,
    act,
    convs,
    frozen_inside,
    images,
    small,
    tokens,
    vectors,
)
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from normgauge.lab.zoo import gpt, vit

VOCABULARY = 14  # more than the width and a bias, or the words could be told apart by accident


def zoo() -> list[Case]:
    """Networks of normgauge.lab.zoo."""
    found = [Case(f"mlp {norm}", lambda norm=norm: small(norm), vectors(8)) for norm in NORMS]
    found += [
        Case("mlp batch, no affine", lambda: small("batch", affine=False), vectors(8)),
        Case("mlp layer, no affine", lambda: small("layer", affine=False), vectors(8)),
        Case("mlp batch, gain only", lambda: small("batch", affine="gamma"), vectors(8)),
        Case("mlp batch, eval", lambda: small("batch"), vectors(8), "eval"),
        Case("resnet batch", lambda: TinyResNet("batch"), images(3, 6, 30, 12)),
        Case("resnet batch, eval", lambda: TinyResNet("batch"), images(3, 6, 30, 24), "eval"),
        Case("resnet group", lambda: TinyResNet("group"), images(3, 6, 30, 12)),
        Case("vit layer", lambda: vit(6, 3, 2, 4, 1, 2, 3), images(2, 6, 50, 6)),
        Case("vit rms", lambda: vit(6, 3, 2, 4, 1, 2, 3, "rms"), images(2, 6, 50, 6)),
        Case("gpt layer", lambda: gpt(VOCABULARY, 4, 1, 2, 5), tokens(VOCABULARY)),
        Case("gpt rms", lambda: gpt(VOCABULARY, 4, 1, 2, 5, "rms"), tokens(VOCABULARY)),
        Case("gpt layer, post", lambda: gpt(VOCABULARY, 4, 1, 2, 5, "layer", "post"), tokens(VOCABULARY)),
        Case("gpt without normalizer", lambda: gpt(VOCABULARY, 4, 1, 2, 5, None), tokens(VOCABULARY)),
    ]
    return found


NORMS = (None, "batch", "layer", "group", "instance", "rms")


def awkward() -> list[Case]:
    """Everything that is hard to follow by the names of modules."""
    conv, bn = nn.Conv2d, nn.BatchNorm2d
    rows = vectors(8)
    return [
        Case("one linear layer", lambda: nn.Linear(5, 3), vectors(5)),
        Case("two linear layers", lambda: nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 5)), vectors(6)),
        Case("no biases", lambda: nn.Sequential(nn.Linear(8, 6, bias=False), act(), nn.Linear(6, 3, bias=False)), rows),
        Case("shared weights", Looped, rows),
        Case("tied transposes", TiedDecoder, vectors(7)),
        Case("residual, layer before", lambda: Residual(nn.LayerNorm), rows),
        Case("residual, layer after", lambda: Residual(nn.LayerNorm, True), rows),
        Case("residual, batch before", lambda: Residual(nn.BatchNorm1d), rows),
        Case("residual, batch after", lambda: Residual(nn.BatchNorm1d, True), rows),
        Case("residual, batch after, eval", lambda: Residual(nn.BatchNorm1d, True), rows, "eval"),
        Case("residual, rms before", lambda: Residual(nn.RMSNorm), rows),
        Case("frozen batch inside", frozen_inside, rows),
        Case("frozen batch inside, eval", frozen_inside, rows, "eval"),
        Case("weight norm and batch", lambda: nn.Sequential(
            weight_norm(nn.Linear(8, 5)), nn.BatchNorm1d(5), act(), weight_norm(nn.Linear(5, 3)), act(),
            nn.Linear(3, 2)), rows),
        Case("weight norm pairs", lambda: nn.Sequential(
            weight_norm(nn.Linear(8, 5)), act(), weight_norm(nn.Linear(5, 6)), act(), nn.Linear(6, 2)), rows),
        Case("spectral norm and batch", lambda: nn.Sequential(
            spectral_norm(nn.Linear(8, 5)), nn.BatchNorm1d(5), act(), spectral_norm(nn.Linear(5, 4)), act(),
            nn.Linear(4, 2)), rows),
        *[Case(f"function: {kind}", lambda kind=kind: Functional(kind), rows) for kind in FUNCTIONS],
        Case("einsum", Einsum, rows),
        Case("PReLU", lambda: nn.Sequential(
            nn.Linear(8, 5), nn.PReLU(5), nn.Linear(5, 4), nn.BatchNorm1d(4), nn.PReLU(), nn.Linear(4, 2)), rows),
        Case("batch twice in a row", lambda: nn.Sequential(
            nn.Linear(8, 5), nn.BatchNorm1d(5), nn.BatchNorm1d(5, track_running_stats=False), act(),
            nn.Linear(5, 2)), rows),
        Case("learned factors", Scaled, rows),
        Case("instance and group convs", lambda: convs(
            conv(3, 4, 3, padding=1), nn.InstanceNorm2d(4, affine=True), act(), nn.MaxPool2d(2), conv(4, 6, 3, groups=2),  # noqa: E501
            nn.GroupNorm(3, 6), act(), width=6), images(3, 8)),
        Case("depthwise convs", lambda: convs(
            conv(2, 4, 1), bn(4), act(), conv(4, 4, 3, groups=4, padding=1), bn(4), act(), conv(4, 3, 1), bn(3), act(),
            width=3), images(2, 6)),
        Case("depthwise convs, eval", lambda: convs(
            conv(2, 4, 1), bn(4), act(), conv(4, 4, 3, groups=4, padding=1), bn(4), act(), conv(4, 3, 1), bn(3), act(),
            width=3), images(2, 6), "eval"),
        Case("transposed conv", lambda: convs(
            conv(2, 3, 3), bn(3), act(), nn.ConvTranspose2d(3, 4, 2, 2), bn(4), act(), width=4), images(2, 6)),
        Case("transposed conv with groups", lambda: convs(
            conv(2, 4, 3), act(), nn.ConvTranspose2d(4, 4, 2, 2, groups=2), nn.GroupNorm(2, 4), act(), width=4),
            images(2, 6)),
        Case("pixel shuffle", lambda: convs(
            conv(2, 8, 3), nn.PixelShuffle(2), bn(2), act(), conv(2, 3, 3), act(), width=3), images(2, 6)),
        Case("squeeze and excitation", lambda: convs(
            conv(2, 4, 3), bn(4), act(), Gate(4), conv(4, 3, 1), act(), width=3), images(2, 6)),
        Case("dense blocks", Dense, images(2, 6)),
        Case("standardized kernels", lambda: convs(
            Standardized(2, 4, 3), nn.GroupNorm(2, 4), act(), Standardized(4, 3, 3), act(), width=3), images(2, 8)),
        Case("Conv1d and batch", lambda: nn.Sequential(
            nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), act(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(4, 2)),
            lambda: [torch.randn(40, 3, 8) for _ in range(6)]),
        Case("Conv3d and batch", lambda: nn.Sequential(
            nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3), act(), nn.AvgPool3d(2), nn.Flatten(), nn.Linear(3, 2)),
            lambda: [torch.randn(40, 2, 3, 3, 3) for _ in range(6)]),
        Case("MultiheadAttention", Attending, lambda: [torch.randn(12, 4, 7) for _ in range(6)]),
        Case("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True),
             lambda: [torch.randn(12, 4, 6) for _ in range(4)]),
        Case("grouped queries", Grouped, lambda: [torch.randn(12, 4, 6) for _ in range(6)]),
        Case("EmbeddingBag", Bag, tokens(9, 3, 40, 6)),
        Case("LSTM and batch", Recurrent, lambda: [torch.randn(40, 4, 5) for _ in range(6)]),
    ]  # fmt: skip


FUNCTIONS = ("layer", "batch", "rms by hand", "layer by hand", "length one")


def transformers() -> list[Case]:
    """Configurations of the transformers library, a few weights wide."""
    import transformers as tf

    tf.logging.set_verbosity_error()
    llama = {
        "vocab_size": VOCABULARY, "hidden_size": 8, "intermediate_size": 7, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False, "pad_token_id": None,
        "bos_token_id": 0, "eos_token_id": 0, "head_dim": 4,
    }  # fmt: skip
    gpt2 = {
        "vocab_size": VOCABULARY, "n_positions": 5, "n_embd": 6, "n_layer": 1, "n_head": 2, "n_inner": 7,
        "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    bert = {
        "vocab_size": VOCABULARY, "hidden_size": 6, "intermediate_size": 7, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 5, "type_vocab_size": 1, "pad_token_id": None,
    }  # fmt: skip
    words, pictures = tokens(VOCABULARY), images(2, 6, 40, 6)

    def model(kind: str, options: dict[str, Any], **more: Any) -> Callable[[], nn.Module]:
        config = kind.replace("ForCausalLM", "").replace("LMHeadModel", "").replace("ForImageClassification", "")
        config = config.replace("EncoderModel", "").removesuffix("Model") + "Config"
        return lambda: getattr(tf, kind)(getattr(tf, config)(**options), **more)

    return [
        Case("GPT-2", model("GPT2LMHeadModel", gpt2), words),
        Case("GPT-2, head of its own", model("GPT2LMHeadModel", gpt2 | {"tie_word_embeddings": False}), words),
        Case("Llama, one head of keys", model("LlamaForCausalLM", llama), words),
        Case("Llama, tied", model("LlamaForCausalLM", llama | {"num_key_value_heads": 2, "tie_word_embeddings": True}),
             words),
        Case("Qwen2", model("Qwen2ForCausalLM", llama), words),
        Case("Qwen3", model("Qwen3ForCausalLM", llama), words),
        Case("Mistral", model("MistralForCausalLM", llama | {"sliding_window": 3}), words),
        Case("Gemma", model("GemmaForCausalLM", llama), words),
        Case("GPT-NeoX", model("GPTNeoXForCausalLM", {
            "vocab_size": 30, "hidden_size": 8, "intermediate_size": 5, "num_hidden_layers": 1, "rotary_pct": 0.5,
            "num_attention_heads": 1, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": False}),
            tokens(30, count=5)),
        Case("OPT", model("OPTForCausalLM", {
            "vocab_size": VOCABULARY, "hidden_size": 6, "ffn_dim": 7, "num_hidden_layers": 1, "num_attention_heads": 2,
            "max_position_embeddings": 5, "word_embed_proj_dim": 6, "pad_token_id": None, "bos_token_id": 0,
            "eos_token_id": 0, "activation_function": "gelu"}), words),
        Case("BERT", model("BertModel", bert, add_pooling_layer=False), words),
        Case("DistilBERT", model("DistilBertModel", {
            "vocab_size": VOCABULARY, "dim": 6, "hidden_dim": 7, "n_layers": 1, "n_heads": 2, "pad_token_id": None,
            "max_position_embeddings": 5}), words),
        Case("T5 encoder", model("T5EncoderModel", {
            "vocab_size": VOCABULARY, "d_model": 6, "d_kv": 3, "d_ff": 7, "num_layers": 1, "num_heads": 2,
            "relative_attention_num_buckets": 6, "relative_attention_max_distance": 8, "pad_token_id": None,
            "dense_act_fn": "gelu"}), words),
        Case("ViT", model("ViTForImageClassification", {
            "hidden_size": 6, "intermediate_size": 7, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 6,
            "patch_size": 3, "num_channels": 2, "num_labels": 3}), pictures),
        Case("ConvNeXt", model("ConvNextForImageClassification", {
            "hidden_sizes": [4, 6], "depths": [1, 1], "num_stages": 2, "num_channels": 2, "patch_size": 2,
            "num_labels": 3, "layer_scale_init_value": 0.5}), images(2, 16, 40, 12)),
        Case("Swin", model("SwinForImageClassification", {
            "image_size": 8, "patch_size": 2, "num_channels": 2, "embed_dim": 4, "depths": [1], "num_heads": [2],
            "window_size": 2, "num_labels": 3}), images(2, 8, 40, 12)),
        Case("ResNet", model("ResNetForImageClassification", RESNET), images(2, 24, 40, 12)),
        Case("ResNet, eval", model("ResNetForImageClassification", RESNET), images(2, 24, 40, 12), "eval"),
    ]  # fmt: skip


RESNET = {
    "num_channels": 2, "embedding_size": 4, "hidden_sizes": [4, 5], "depths": [1, 1], "layer_type": "basic",
    "num_labels": 3,
}  # fmt: skip


def settle(model: nn.Module, seed: int = 0) -> nn.Module:
    """Weights and statistics at random, none of them in a special place."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=source)
            if weight.ndim > 1:
                weight.copy_(0.5 * noise)
            else:
                weight.copy_(0.2 * noise + (0.0 if "bias" in name or "shift" in name else 1.0))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.3 * torch.randn(buffer.shape, generator=source))
            elif name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=source))
    return model


def cases() -> list[Case]:
    """All of them."""
    return [*zoo(), *awkward(), *transformers()]
