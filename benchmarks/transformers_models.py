"""Can every model that runs be measured? Architectures of transformers (or torchvision), tiny, one process each.

    python -m benchmarks.transformers_models [NAME ...] [--all] [--torchvision] [--jobs 1] [--limit 60] [--json FILE]

Every architecture is built by the same function from its own configuration class, with the sizes of `SMALL` in place of
its defaults, and called with a batch made from the name of its main input. Each is measured at the point and globally.
What a model gets is one of

    finite       a finite upper end at the point
    infinite     a rule or a proof says that none was found; the step is named
    unknown      a step without a rule; the step is named
    refused      one line of an error of ours, for a model whose own forward runs
    precision    refused, because the model and what it is given disagree on a type of numbers
    traceback    any other error: always a bug of ours
    too slow     nothing after the time limit
    not built    the generic configuration does not fit: says nothing of normgauge

Exit status 1 when there is a traceback or a failure of precision.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import inspect
import json
import math
import multiprocessing
import multiprocessing.connection
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import normgauge as ng

WIDTH, LAYERS, HEADS, WORDS, LENGTH, PIXELS = 32, 2, 4, 99, 8, 32
LARGEST = 3_000_000  # parameters: a default that no entry of SMALL replaced makes a model no test of this kind wants
PRECISION = ("did not match", "same dtype", "expected scalar type", "to be the same", "Input type", "dtype")

NAMES = (
    (WIDTH,
     "hidden_size d_model n_embd dim emb_dim embed_dim embedding_size d_embed model_dim hidden_dim "
     "hidden_channels projection_dim vocab_embed_dim word_embed_proj_dim encoder_hidden_size "
     "decoder_hidden_size true_hidden_size lru_width output_hidden_size conv_pos_dim rnn_hidden_size "
     "query_dim encoder_hidden_dim attention_hidden_size"),
    (LAYERS,
     "num_hidden_layers n_layer n_layers num_layers layers depth encoder_layers decoder_layers "
     "num_encoder_layers num_decoder_layers decoder_num_hidden_layers num_encoder_blocks_per_stage stages "
     "num_adapter_layers max_window_layers num_hidden_groups speech_encoder_layers"),
    (HEADS,
     "num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads "
     "num_encoder_attention_heads num_decoder_attention_heads speech_encoder_attention_heads mamba_n_heads "
     "num_heads"),
    (2,
     "num_key_value_heads num_kv_heads n_head_kv num_experts_per_tok moe_topk decoder_num_key_value_heads "
     "encoder_num_key_value_heads linear_num_key_heads linear_num_value_heads "
     "num_conv_pos_embedding_groups intermediate_bottleneck_size_factor first_k_dense_replace "
     "sliding_window_pattern"),
    (48,
     "intermediate_size ffn_dim d_ff dim_ff encoder_ffn_dim decoder_ffn_dim n_inner ffn_hidden_size "
     "ffw_size dff moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size "
     "decoder_intermediate_size mlp_dim ffn_hidden_dim block_ff_dim pooler_fc_size intermediate_size_mlp"),
    (WORDS,
     "vocab_size n_vocab entity_vocab_size vocab_size_per_layer_input"),
    (64,
     "max_position_embeddings n_positions n_ctx max_seq_len max_source_positions max_target_positions "
     "seq_length context_length max_2d_position_embeddings max_encoder_position_embeddings"),
    (8,
     "head_dim d_kv d_head qk_rope_head_dim qk_nope_head_dim v_head_dim kv_lora_rank q_lora_rank "
     "attention_head_size state_size mamba_d_state linear_key_head_dim linear_value_head_dim "
     "relative_attention_num_buckets patch_size num_mel_bins entity_emb_size mamba_d_head index_head_dim "
     "index_topk sliding_window local_attention window_len attention_window num_conv_pos_embeddings "
     "decoder_head_dim char_emb_dim rotary_dim embedding_dim d_inner"),
    (4,
     "num_experts n_routed_experts num_local_experts moe_num_experts num_queries index_n_heads "
     "time_step_rank n_group mamba_dt_rank"),
    (1,
     "topk_group n_shared_experts num_shared_experts pad_token_id num_codevector_groups "
     "num_register_tokens"),
    (PIXELS,
     "image_size img_size"),
    (0,
     "bos_token_id"),
    (3,
     "eos_token_id sep_token_id decoder_start_token_id num_channels in_chans"),
)  # fmt: skip
SMALL = {name: value for value, names in NAMES for name in names.split()}
LISTS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "depths": lambda default: [1] * len(default),
    "hidden_sizes": lambda default: [8, 16, 16, 24, 24, 32, 32][: len(default)],
    "embed_dims": lambda default: [8, 16, 16, 24][: len(default)],
    "embed_dim": lambda default: [8, 16, 16, 24][: len(default)],
    "dims": lambda default: [8, 16, 16, 24][: len(default)],
    "num_heads": lambda default: [2] * len(default),
    "num_attention_heads": lambda default: [2] * len(default),
    "decoder_hidden_size": lambda default: [16] * len(default),
    "patch_size": lambda default: [4] * len(default),
    "image_size": lambda default: [PIXELS] * len(default),
    "conv_dim": lambda default: [8] * len(default),
    "neck_hidden_sizes": lambda default: [8, 8, 8, 16, 16, 16, 24][: len(default)],
}
KNOWN: dict[str, dict[str, Any]] = {  # where one size fixes another
    "albert": {"embedding_size": 16},
    "bit": {"layer_type": "preactivation", "num_groups": 4, "embedding_size": 8},
    "deepseek_v3": {"num_key_value_heads": 4},
    "fsmt": {"src_vocab_size": 99, "tgt_vocab_size": 99, "langs": ["en", "de"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mpnet": {"relative_attention_num_buckets": 32},
    "roc_bert": {"enable_pronunciation": False, "enable_shape": False},
    "xlstm": {"head_dim": 8, "num_heads": 4, "qk_dim_factor": 1.0, "v_dim_factor": 1.0, "chunk_size": 8},
    "convnext": {"patch_size": 2},
    "convnextv2": {"patch_size": 2},
    "lilt": {"hidden_size": 24},
    "speech_to_text": {"input_feat_per_channel": 8},
    "swin2sr": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "patch_size": 1},
    "swin": {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "swinv2": {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "donut-swin": {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4},
    "mamba": {"state_size": 4, "intermediate_size": 64, "time_step_rank": 4},
    "falcon_mamba": {"state_size": 4, "intermediate_size": 64, "time_step_rank": 4},
    "mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 4},
    "resnet": {"layer_type": "basic", "embedding_size": 8},
    "efficientnet": {
        "width_coefficient": 0.1, "depth_coefficient": 1.0, "hidden_dim": 128, "kernel_sizes": [3, 5],
        "in_channels": [32, 80], "out_channels": [80, 160], "strides": [1, 2], "num_block_repeats": [1, 2],
        "expand_ratios": [1, 4],
    },
}  # fmt: skip
CHOSEN = (
    "albert bart bert bert-generation big_bird biogpt bitnet blenderbot blenderbot-small bloom bros camembert "
    "canine codegen cohere cohere2 convbert cpmant ctrl data2vec-text deberta deberta-v2 deepseek_v3 diffllama "
    "distilbert dots1 electra ernie ernie4_5 esm eurobert exaone4 falcon falcon_mamba flaubert fnet fsmt funnel "
    "gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite "
    "granitemoe helium ibert jamba jetmoe layoutlm led lilt llama longformer longt5 luke m2m_100 mamba mamba2 "
    "marian mbart megatron-bert mistral mixtral mobilebert modernbert mpnet mpt mra mt5 nemotron nllb-moe "
    "nystromformer olmo olmo2 olmoe openai-gpt opt pegasus persimmon phi phi3 phimoe plbart prophetnet qwen2 "
    "qwen2_moe qwen3 qwen3_moe recurrent_gemma reformer rembert roberta roberta-prelayernorm roc_bert roformer "
    "rwkv smollm3 splinter squeezebert stablelm starcoder2 switch_transformers t5 umt5 xglm xlm xlm-roberta "
    "xlm-roberta-xl xlnet xlstm xmod yoso audio-spectrogram-transformer beit bit clip_vision_model convnext "
    "convnextv2 cvt data2vec-vision deit dinov2 dinov2_with_registers dinov3_vit donut-swin dpt efficientnet "
    "focalnet glpn hgnet_v2 hiera ijepa imagegpt levit mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 poolformer "
    "pvt pvt_v2 regnet resnet segformer siglip_vision_model swiftformer swin swin2sr swinv2 textnet timesformer "
    "videomae vit vit_mae vit_msn vitdet vivit yolos clip_text_model data2vec-audio hubert sew speech_to_text "
    "unispeech wav2vec2 wav2vec2-conformer wavlm whisper patchtst patchtsmixer "
)


class Unbuilt(Exception):
    """The generic sizes do not fit this architecture."""


def configurations() -> dict[str, Any]:
    """The configuration class of every architecture that has a plain model, by name."""
    import transformers

    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    return {kind.model_type: kind for kind in reversed(list(transformers.MODEL_MAPPING.keys()))}


def small_config(name: str, kind: Any) -> Any:
    """The configuration with every size that has an entry made small."""
    fields = (
        kind.__dataclass_fields__ if dataclasses.is_dataclass(kind) else inspect.signature(kind.__init__).parameters
    )
    plain = vars(kind())
    chosen: dict[str, Any] = {}
    for field in fields:
        default = plain.get(field)
        if isinstance(default, list | tuple) and field in LISTS:
            chosen[field] = type(default)(LISTS[field](list(default)))
        elif field in SMALL and not isinstance(default, list | tuple | bool):
            chosen[field] = SMALL[field]
    return kind(**{**chosen, **KNOWN.get(name, {})})


def built(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A tiny model of the architecture in eval mode, and a batch it runs on.

    Raises:
        Unbuilt: when the generic sizes do not fit.
    """
    import transformers

    kind = configurations()[name]
    torch.manual_seed(0)
    try:
        model_kind = transformers.MODEL_MAPPING[kind]
        model_kind = model_kind[0] if isinstance(model_kind, tuple) else model_kind
        config = small_config(name, kind)
        with torch.device("meta"):
            size = sum(p.numel() for p in model_kind(config).parameters())
        if size > LARGEST:
            raise Unbuilt(f"{size:,} parameters")
        model = model_kind(config).float().eval()
    except Exception as error:
        raise Unbuilt(said(error)) from error
    failures: list[Exception] = []
    for batch in batches(model):
        try:
            with torch.no_grad():
                model(**batch)
        except Exception as error:
            failures.append(error)
        else:
            return model, batch
    raise Unbuilt(f"no generic batch: {said(failures[0])}") from failures[0]


def batches(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """What the model may want to be called with, likely ones first."""
    takes = inspect.signature(model.forward).parameters
    words = torch.randint(4, WORDS, (2, LENGTH))
    main = getattr(model, "main_input_name", "input_ids")
    config = model.config
    channels = getattr(config, "num_channels", 3)
    mels, frames = getattr(config, "num_mel_bins", 8), getattr(config, "num_frames", 2)
    shapes = {
        "pixel_values": [(2, channels, PIXELS, PIXELS), (2, frames, channels, PIXELS, PIXELS)],
        "input_values": [(2, 640), (2, getattr(config, "max_length", 64), mels)],
        "input_features": [(2, mels, 2 * LENGTH), (2, 2 * LENGTH, mels), (2, mels, 128)],
        "past_values": [(2, getattr(config, "context_length", 64), getattr(config, "num_input_channels", 1))],
    }
    texts = {"input_ids": words}
    if "decoder_input_ids" in takes:
        texts["decoder_input_ids"] = words.flip(1)
    extra = {"decoder_input_ids": words} if "decoder_input_ids" in takes and main != "input_ids" else {}
    for key in (main, *takes):
        for shape in shapes.get(key, ()):
            yield {key: torch.randn(shape), **extra}
        if key == "input_ids":
            yield texts
            yield {**texts, "attention_mask": torch.ones_like(words)}
            yield {**texts, "bbox": torch.tensor([1, 2, 5, 7]).expand(2, LENGTH, 4)}
    yield texts


def torchvision_model(name: str) -> tuple[nn.Module, Tensor]:
    """A classification network of torchvision with fresh weights, and two images, small where the network allows it."""
    import torchvision

    torch.manual_seed(0)
    options: dict[str, Any] = {"weights": None, "num_classes": 10}
    pixels = {"inception_v3": 96, "maxvit_t": 224}.get(name, 64)
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": False}
    if name.startswith("vit"):
        options["image_size"] = pixels
    return torchvision.models.get_model(name, **options).eval(), torch.randn(2, 3, pixels, pixels)


def torchvision_names() -> list[str]:
    """torchvision's classification list but for the two networks of more than half a billion weights."""
    import torchvision

    names = torchvision.models.list_models(module=torchvision.models)
    return [name for name in names if name not in ("vit_h_14", "regnet_y_128gf")]


def measured(make: Callable[[str], tuple[nn.Module, Any]], name: str) -> dict[str, Any]:
    """Build one architecture and measure it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        model, batch = make(name)
    except Unbuilt as why:
        return {"verdict": "not built", "why": str(why)}
    begun = time.process_time()
    try:
        with torch.no_grad():
            model(**batch) if isinstance(batch, dict) else model(batch)
        forward = time.process_time() - begun
        point, everywhere = ng.readings(model, batch, ("point", "global"), search=False, balance=False)
    except ng.NormgaugeError as error:
        verdict = "precision" if any(word in str(error) for word in PRECISION) else "refused"
        return {"verdict": verdict, "why": said(error), "seconds": time.process_time() - begun}
    except Exception as error:
        return {
            "verdict": "traceback",
            "why": f"{said(error)} at {place(error)}",
            "seconds": time.process_time() - begun,
        }
    return {**verdict_of(point), "forward": forward, "seconds": time.process_time() - begun,
            "parameters": sum(p.numel() for p in model.parameters()),
            "point": summary(point), "global": summary(everywhere)}  # fmt: skip


def verdict_of(point: Any) -> dict[str, str]:
    """The verdict on the reading at the point, and the step at fault."""
    lost = [*point.unknown, *getattr(point, "no_bound", ()), *point.unbounded]
    why = "; ".join(dict.fromkeys(f"{f.name}: {f.why}" for f in lost[:3]))
    if point.unknown or str(point.evidence) in ("unknown", "Evidence.UNKNOWN"):
        return {"verdict": "unknown", "why": why or "; ".join(point.notes)}
    return {"verdict": "finite" if math.isfinite(point.log_upper) else "infinite", "why": why}


def summary(reading: Any) -> dict[str, Any]:
    """The few fields that count."""
    spelled = {
        key: value if math.isfinite(value) else str(value)
        for key, value in (
            ("log10_upper", reading.log_upper / math.log(10)),
            ("log10_lower", reading.log_lower / math.log(10)),
        )
    }
    return {
        **spelled,
        "evidence": reading.evidence.value,
        "unknown": len(reading.unknown),
        "notes": list(reading.notes),
    }


def said(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def place(error: BaseException) -> str:
    """Where it was raised, the last frame of this package and the last of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "normgauge" in f.filename and "benchmarks" not in f.filename]
    return ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in [*ours[-1:], frames[-1]])


def child(pipe: Any, make: Callable[[str], tuple[nn.Module, Any]], name: str) -> None:
    """What one process does."""
    try:
        pipe.send(measured(make, name))
    except Exception as error:
        pipe.send({"verdict": "traceback", "why": f"outside the measurement: {said(error)} at {place(error)}"})


def survey(make: Callable[[str], tuple[nn.Module, Any]], names: list[str], jobs: int, limit: float) -> dict[str, Any]:
    """Measure each in a process of its own, some at a time, and print as they come."""
    context = multiprocessing.get_context("fork")
    waiting, running, found = list(names), {}, {}
    while waiting or running:
        while waiting and len(running) < jobs:
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=child, args=(there, make, name := waiting.pop(0)))
            process.start()
            there.close()
            running[here] = (name, process, time.monotonic())
        for pipe in multiprocessing.connection.wait(list(running), 0.2):
            name, process, _ = running.pop(pipe)
            try:
                found[name] = pipe.recv()
            except EOFError:
                found[name] = {"verdict": "traceback", "why": f"the process died with status {process.exitcode}"}
            process.join()
            show(name, found[name])
        for pipe, (name, process, since) in list(running.items()):
            if time.monotonic() - since > limit:
                process.kill()
                process.join()
                del running[pipe]
                found[name] = {"verdict": "too slow", "why": f"nothing after {limit:.0f} s"}
                show(name, found[name])
    return dict(sorted(found.items()))


def show(name: str, row: dict[str, Any]) -> None:
    """One line."""
    upper = row["point"]["log10_upper"] if "point" in row else ""
    number = f"{upper:8.2f}" if isinstance(upper, float) else f"{upper:>8}"
    print(f"{name:32} {row['verdict']:10} {number} {row.get('seconds', 0):6.1f} s  {row['why']}"[:230], flush=True)


def main() -> int:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="every architecture of MODEL_MAPPING")
    parser.add_argument("--torchvision", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60, help="seconds for each")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    make: Callable[[str], tuple[nn.Module, Any]]
    if given.torchvision:
        make, known = torchvision_model, torchvision_names()
        chosen = known
    else:
        make, known = built, list(configurations())
        chosen = known if given.all else [name for name in CHOSEN.split() if name in known]
    found = survey(make, given.names or chosen, given.jobs, given.limit)
    counts = collections.Counter(row["verdict"] for row in found.values())
    print(f"\n{len(found) - counts['not built']} built: " + ", ".join(f"{n} {v}" for v, n in counts.most_common()))
    if given.json:
        where = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()}
        given.json.write_text(json.dumps({"environment": where, "counts": counts, "models": found}, indent=1) + "\n")
    return int(bool(counts["traceback"] or counts["precision"]))


if __name__ == "__main__":
    sys.exit(main())
