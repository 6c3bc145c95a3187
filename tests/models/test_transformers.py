"""Hugging Face architectures, tiny: every operation has a rule, and no bound is below what was found."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from normgauge.instrument.measure import readings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed (pip install normgauge[llm])"
    )
    transformers.logging.set_verbosity_error()

TEXT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 50,
    "max_position_embeddings": 64,
}  # fmt: skip
DECODER = {**TEXT, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
GPT2 = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "vocab_size": 50,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
IMAGE = {"image_size": 32, "num_labels": 5}
STAGES = {"hidden_sizes": [8, 16, 16, 24], "num_labels": 5}
PATCHES = {
    **IMAGE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "patch_size": 8,
}
BLOCKS = {
    **IMAGE, "width_coefficient": 0.1, "depth_coefficient": 1.0, "hidden_dim": 128, "kernel_sizes": [3, 5],
    "in_channels": [32, 80], "out_channels": [80, 160],
    "strides": [1, 2], "num_block_repeats": [1, 2], "expand_ratios": [1, 4],
}  # fmt: skip
WINDOWS = {**IMAGE, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
MODELS = {
    "ViTForImageClassification": ("ViTConfig", PATCHES),
    "SwinForImageClassification": ("SwinConfig", WINDOWS),
    "ConvNextForImageClassification": ("ConvNextConfig", {**STAGES, "depths": [1, 1, 2, 1], "image_size": 32}),
    "ResNetForImageClassification": (
        "ResNetConfig",
        {**STAGES, "embedding_size": 8, "depths": [1, 1, 1, 1], "layer_type": "basic"},
    ),
    "EfficientNetForImageClassification": ("EfficientNetConfig", BLOCKS),
    "BertForSequenceClassification": ("BertConfig", TEXT),
    "GPT2LMHeadModel": ("GPT2Config", GPT2),
    "LlamaForCausalLM": ("LlamaConfig", DECODER),
    "MistralForCausalLM": ("MistralConfig", {**DECODER, "sliding_window": 4}),
    "Qwen3ForCausalLM": ("Qwen3Config", {**DECODER, "head_dim": 8}),
}
EAGER = [
    "ViTForImageClassification",
    "BertForSequenceClassification",
    "GPT2LMHeadModel",
    "MistralForCausalLM",
]
CASES = [(name, "") for name in MODELS] + [(name, "eager") for name in EAGER]


def built(name: str, attention: str):
    torch.manual_seed(0)
    config, options = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = getattr(transformers, config)(**options, **({"attn_implementation": attention} if attention else {}))
        model = getattr(transformers, name)(made).eval()
    if "pixel" in model.main_input_name:
        return model, {"pixel_values": torch.randn(2, 3, 32, 32)}
    batch = {"input_ids": torch.randint(0, 50, (2, 6))}
    if "Bert" in name:
        batch["attention_mask"] = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    return model, batch


@pytest.mark.parametrize(("name", "attention"), CASES, ids=[f"{n}-{a or 'default'}" for n, a in CASES])
def test_no_operation_is_unknown_and_the_bound_is_above_what_is_found(name, attention):
    model, batch = built(name, attention)
    scopes = ("point", "ball:0.001", "global")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        point, ball, everywhere = readings(model, batch, scopes, balance=False, search=False)
    for reading in (point, ball, everywhere):
        assert not reading.unknown, reading.unknown
        assert reading.log_upper >= reading.log_lower
        usual = ("proved", "computed") if reading.scope.kind == "point" else ("proved",)
        assert reading.evidence.value in (("unknown",) if reading.no_bound else usual)
    assert math.isfinite(point.log_upper) and math.isfinite(point.log_lower)
    assert math.isfinite(ball.log_upper)
    assert point.log_upper <= ball.log_upper + 1e-6 <= everywhere.log_upper + 2e-6
    gated = "EfficientNet" in name
    assert math.isfinite(everywhere.log_upper) != gated
    assert bool(everywhere.unbounded or everywhere.no_bound) == gated
    assert not any("influence each other" in note for note in point.notes)
