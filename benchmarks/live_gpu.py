"""What watching a GPT costs on an accelerator: ms a step with and without, memory, waits, proofs and their ages.

PYTHONPATH=src python3 benchmarks/live_gpu.py --out results
PYTHONPATH=src python3 benchmarks/live_gpu.py --tiny --out /tmp/live
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import normgauge as ng
from normgauge.core import store

WARM_UP = 300  # steps up to the full rate: without them logits saturate, and what alarms ask for is measured
SIZES = {"gpt": (12, 768, 12, 50304, 1024, 8), "tiny": (2, 128, 4, 512, 64, 2)}


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).view(batch, length, 3 * self.heads, -1).transpose(1, 2).chunk(3, dim=1)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, depth: int, width: int, heads: int, words: int, length: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.wte.weight
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class Training:
    """One training that can be taken step by step."""

    def __init__(self, model: nn.Module, tokens: Tensor, compiled: bool) -> None:
        self.model, self.tokens = model, tokens
        self.called = torch.compile(model) if compiled else model
        fused = {"fused": True} if tokens.is_cuda else {}
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), **fused)
        warm = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / WARM_UP))
        self.schedule, self.monitor = warm, cast(ng.Monitor | None, None)
        self.host: list[float] = []
        self.ended = time.perf_counter()

    def watch(self, **options: Any) -> None:
        self.monitor = ng.Monitor(self.called, tempfile.mkdtemp(), optimizer=self.optimizer, **options)

    def step(self, number: int) -> None:
        batch = self.tokens[number % len(self.tokens)]
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=batch.is_cuda):
            logits = self.called(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        if self.monitor is not None:
            began = time.perf_counter()
            self.monitor.step(loss=loss)
            self.host.append(time.perf_counter() - began)

    def block(self, first: int, steps: int) -> float:
        """Milliseconds of some steps, by the device's clock."""
        cuda = self.tokens.is_cuda
        if self.monitor is not None and self.monitor._schedule._call is not None:
            # The other training's steps are no time of this one: they must not earn it a budget.
            self.monitor._schedule._call += self.monitor._schedule.clock() - self.ended
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else []
        began = time.process_time()
        if cuda:
            torch.cuda.synchronize()
            marks[0].record()
        for number in range(first, first + steps):
            self.step(number)
        if cuda:
            marks[1].record()
            torch.cuda.synchronize()
        self.ended = 0.0 if self.monitor is None else self.monitor._schedule.clock()
        return marks[0].elapsed_time(marks[1]) if cuda else 1e3 * (time.process_time() - began)


def peak(device: str, work: Callable[[], object]) -> float:
    """Megabytes at the most while something is done."""
    if device != "cuda":
        work()
        return 0.0
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() / 1e6


def waits(training: Training, steps: int) -> dict[str, int]:
    """How often the host waited for the device in some steps, and in those of them that called the monitor."""
    if not training.tokens.is_cuda:
        return {}
    found: dict[str, int] = {}
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for number in range(steps):
                training.step(number)
        for each in caught:
            if "synchron" in str(each.message):
                place = "monitor" if "normgauge" in each.filename else Path(each.filename).name
                found[place] = found.get(place, 0) + 1
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return found


def told(monitor: ng.Monitor) -> dict[str, Any]:
    """What the run file says of proofs: their widths, how often they came, how old they got."""
    monitor.close()
    run = store.read(monitor.path)
    widths, ages, proofs, sigmas, folded, heads = [], [], {}, 0, 0, 0
    for line in run.steps:
        columns = line["columns"]
        sigmas += sum(value is not None for value in columns["sigma_rms"])
        folded += sum(value is not None for value in columns["folded"])
        heads += len(line.get("heads", ()))
        rows = zip(run.layers, columns["norm_lower"], columns["norm_upper"], columns["proof_age"], strict=True)
        for name, lower, upper, age in rows:
            if upper is not None and lower:
                widths.append(upper / lower - 1)
                proofs.setdefault(name, []).append(line["step"])
            if age is not None:
                ages.append(age)
    gaps = [b - a for steps in proofs.values() for a, b in pairwise(steps)]
    return {
        "lines": len(run.steps),
        "layers_proved": len(proofs),
        "widest_fresh_proof": max(widths, default=None),
        "median_fresh_proof": statistics.median(widths) if widths else None,
        "most_steps_between_proofs": max(gaps, default=None),
        "oldest_proof_shown": max(ages, default=None),
        "sigmas_a_line": sigmas / max(1, len(run.steps)),
        "folded_a_line": folded / max(1, len(run.steps)),
        "attentions_a_line": heads / max(1, len(run.steps)),
        "chance": run.steps[-1]["totals"].get("chance") if run.steps else None,
        "share_booked": run.end["share"] if run.end else None,
        "notes": [note["sentence"] for note in run.notes],
    }


def compared(build: Callable[[], Training], options: dict[str, Any], steps: int, block: int) -> dict[str, Any]:
    """The same training with and without the monitor, by turns."""
    plain = build()
    device = plain.tokens.device.type
    alone = peak(device, lambda: [plain.step(number) for number in range(5)])
    watched = build()
    watched.model.load_state_dict(copy.deepcopy(plain.model.state_dict()))
    for number in range(3):
        watched.step(number)
    held = torch.cuda.memory_allocated() if device == "cuda" else 0
    began = time.perf_counter()
    watched.watch(**options)
    made = time.perf_counter() - began
    spent, peaks = {"plain": 0.0, "watched": 0.0}, {"plain": 0.0, "watched": 0.0}
    for first in range(0, steps, block):
        for name, training in (("plain", plain), ("watched", watched)):

            def work(name: str = name, training: Training = training, first: int = first) -> None:
                spent[name] += training.block(first, block)

            peaks[name] = max(peaks[name], peak(device, work))
    # What the monitor keeps is there while the plain training runs too: it counts beside what a reading takes.
    kept = (torch.cuda.memory_allocated() - held) / 1e6 if device == "cuda" else 0.0
    more = kept + max(0.0, peaks["watched"] - peaks["plain"])
    counted = {"plain": waits(plain, 60), "watched": waits(watched, 60)}
    assert watched.monitor is not None
    return {
        "steps": steps,
        "ms_a_step": spent["plain"] / steps,
        "overhead": spent["watched"] / spent["plain"] - 1,
        "host_ms_of_monitor": 1e3 * statistics.mean(watched.host),
        "seconds_to_attach": made,
        "megabytes_alone": alone,
        "megabytes_kept": kept,
        "megabytes_more": more,
        "memory_share": more / alone if alone else None,
        "waits_in_60_steps": counted,
        **told(watched.monitor),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--tiny", action="store_true", help="a few seconds on a CPU")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=270.0, help="no case is begun after this")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    began = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() and not options.tiny else "cpu"
    depth, width, heads, words, length, batch = SIZES["tiny" if options.tiny else "gpt"]
    steps, block = (60, 10) if options.tiny else (options.steps, 25)
    if device == "cpu":
        torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(words, (4, batch, length + 1), generator=generator).to(device)

    def build(compiled: bool) -> Training:
        torch.manual_seed(0)
        return Training(GPT(depth, width, heads, words, length).to(device), tokens, compiled)

    cases: dict[str, tuple[bool, dict[str, Any]]] = {
        "default": (False, {}),
        "every=1": (False, {"every": 1}),
        "every=10": (False, {"every": 10}),
        "compiled, default": (True, {}),
        "compiled, every=10": (True, {"every": 10}),
    }
    kind = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    table: dict[str, Any] = {"device": kind, "torch": torch.__version__}
    options.out.mkdir(parents=True, exist_ok=True)
    for name, (compiled, settings) in cases.items():
        if (options.only and name not in options.only) or time.perf_counter() - began > options.seconds:
            continue
        if options.tiny and compiled:
            continue  # a CPU compiles for minutes
        try:
            table[name] = compared(lambda compiled=compiled: build(compiled), settings, steps, block)  # type: ignore[misc]
            print(
                f"{name}: {table[name]['overhead']:+.2%} of {table[name]['ms_a_step']:.2f} ms", table[name], flush=True
            )
        except Exception as error:
            table[name] = f"{type(error).__name__}: {error}"
            print(name, table[name], flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
        (options.out / "live_gpu.json").write_text(json.dumps(table, indent=1))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
