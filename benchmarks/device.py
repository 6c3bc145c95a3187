"""Measuring where the model lives: is it the same as on the CPU, and what does it cost?

    python -m benchmarks.device equal [--device cuda]
    python -m benchmarks.device costs [NAME ...] [--device cuda] [--json benchmarks/results/device.json]

`equal` measures every case of tests/cases.py and every network of `NETS` on the CPU and on the device, in three scopes,
and prints what differs: the words, or a number by more than `CLOSE`. `costs` builds the networks of `COSTS` with random
weights on the device and measures each in a process of its own: seconds by part, and the most memory that was
allocated, beside what the network itself takes.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normgauge.core.errors import InputError
from normgauge.core.reading import Reading
from normgauge.instrument.measure import readings
from normgauge.instrument.testing import OneStep

SCOPES = ("point", "ball:0.1", "global")
CLOSE = 1e-6  # of a natural logarithm: what is certified of a dense norm
CLOSE_CONV = 2e-3  # the width asked of the norm of a convolution
CLOSE_BALANCED = 1e-4  # balancing steers by float32, and what it finds is proved on either device
RESULTS = Path(__file__).parent / "results" / "device.json"
Made = tuple[nn.Module, Any]


class Residual(nn.Module):
    """Two convolutions around which the input passes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        """Return x + conv(relu(norm(conv(x))))."""
        return x + self.second(torch.relu(self.norm(self.first(x))))


class LastState(nn.Module):
    """A recurrent layer of which the last output is read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output at the last moment."""
        out: Tensor = self.layer(x)[0][:, -1]
        return out


def encoder() -> nn.Module:
    """A layer of a transformer, with attention."""
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3)), (4, 6)),
    "wide": (lambda: nn.Sequential(nn.Linear(1700, 1800), nn.Tanh(), nn.Linear(1800, 5)), (2, 1700)),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), Residual(), nn.Flatten(), nn.Linear(64, 4)),
                     (3, 3, 8, 8)),
    "images": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.GELU(), nn.Conv2d(16, 16, 3, padding=1)),
               (2, 3, 24, 24)),
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.AvgPool2d(2)),
               (2, 4, 8, 8)),
    "encoder": (encoder, (2, 5, 8)),
    "recurrent": (LastState, (2, 4, 3)),
    "rms": (lambda: nn.Sequential(nn.RMSNorm(6), nn.Linear(6, 6), nn.Softmax(-1)), (3, 6)),
}  # fmt: skip


def seeded(make: Callable[[], Any]) -> Any:
    """What ``make`` returns with the random numbers of seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


def net(name: str) -> Made:
    """A small network of `NETS` and a batch for it."""
    make, shape = NETS[name]
    return seeded(make).eval(), seeded(lambda: torch.randn(shape))


def compared(model: nn.Module, x: Any, device: torch.device, **options: Any) -> list[str]:
    """Say how the readings of a model on a device differ from those on the CPU; empty where they do not."""
    options = {"search": False, "pictures": False, **options}
    here = readings(model, x, SCOPES, **options)
    there = readings(model.to(device), x.to(device), SCOPES, **options)
    return [f"{a.scope}: {said}" for a, b in zip(here, there, strict=True) for said in differences(a, b)]


def differences(here: Reading, there: Reading) -> Iterator[str]:
    """Say what differs between two readings beyond their last digits and their times."""
    near = CLOSE_CONV if any("conv" in row.rule for row in here.layers) else CLOSE
    loose = {"log_upper": max(near, CLOSE_BALANCED)}
    numbers = ("log_upper", "log_folded", "log_lower")
    pairs = [(name, getattr(here, name), getattr(there, name)) for name in numbers]
    pairs += [(f"{a.name} own", a.gain.hi, b.gain.hi) for a, b in zip(here.layers, there.layers, strict=False)]
    for name, a, b in pairs:
        if a != b and not abs(a - b) <= loose.get(name, near) * max(1.0, abs(a)):
            yield f"{name} is {b} and was {a}"
    for name in ("unknown", "unbounded", "no_bound", "evidence", "precision", "together"):
        if (a := getattr(here, name)) != (b := getattr(there, name)):
            yield f"{name} is {b} and was {a}"
    if len(here.layers) != len(there.layers):
        yield f"{len(there.layers)} layers and were {len(here.layers)}"


def equal(device: torch.device) -> int:
    """Print what differs on a device; return how many networks do.

    Raises:
        InputError: for a network that runs there and cannot be measured.
    """
    from tests.cases import CASES

    todo: list[tuple[str, Callable[[], Made], str]] = [(name, lambda name=name: net(name), "eval") for name in NETS]
    for case in CASES:
        if "RReLU" in str(case):  # draws other numbers there
            continue

        def build(case: Any = case) -> Made:
            x = case.inputs if isinstance(case.inputs, Tensor) else seeded(lambda: torch.randn(case.inputs))
            return OneStep(seeded(case.built)).double(), x.double()

        todo.append((str(case), build, case.mode))
    wrong = stays = 0
    for name, build, mode in todo:
        try:
            said = compared(*build(), device, mode=mode)
        except InputError as error:
            if "forward raised" not in str(error):
                raise
            stays += 1  # its constants lie in the CPU's memory
            continue
        except Exception as error:
            said = [f"{type(error).__name__}: {error}", *traceback.format_exc().splitlines()[-4:-1]]
        wrong += bool(said)
        for line in said:
            print(f"{name}: {line[:300]}", flush=True)
    print(f"{len(todo)} networks, {wrong} differ, {stays} run on the CPU only")
    return wrong


def llama(width: int, inner: int, layers: int, heads: int, device: torch.device) -> Made:
    """A random Llama in bfloat16, built on the device, and eight tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads, vocab_size=32000, use_cache=False,
    )  # fmt: skip
    return built(lambda: LlamaForCausalLM(config), torch.bfloat16, device), tokens(32000, device)


def gpt2(device: torch.device) -> Made:
    """GPT-2 124M with random weights, and eight tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return built(lambda: GPT2LMHeadModel(GPT2Config(use_cache=False)), torch.float32, device), tokens(50257, device)


def vision(name: str, device: torch.device) -> Made:
    """A network of torchvision with random weights, and one image."""
    import torchvision

    model = built(lambda: getattr(torchvision.models, name)(), torch.float32, device)
    for weight in model.parameters():
        if not weight.any():  # the head of a vision transformer begins at zero, and so would every bound
            nn.init.normal_(weight, std=0.02)
    return model, torch.randn(1, 3, 224, 224, device=device)


def built(make: Callable[[], nn.Module], dtype: torch.dtype, device: torch.device) -> nn.Module:
    """A model made on the device, in eval mode."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return make().eval()
    finally:
        torch.set_default_dtype(before)


def tokens(vocabulary: int, device: torch.device) -> dict[str, Tensor]:
    """One sentence of eight random tokens."""
    return {"input_ids": torch.randint(vocabulary, (1, 8), device=device)}


COSTS: dict[str, tuple[Callable[[torch.device], Made], dict[str, Any]]] = {
    "resnet50": (lambda device: vision("resnet50", device), {}),
    "vit_b_16": (lambda device: vision("vit_b_16", device), {}),
    "gpt2": (gpt2, {}),
    "llama-1.3b": (lambda device: llama(2048, 5504, 24, 16, device), {}),
    "llama-7b": (lambda device: llama(4096, 11008, 32, 32, device), {}),
}


def cost(name: str, device: torch.device, scopes: list[str], quick: bool) -> dict[str, Any]:
    """Measure one network of `COSTS`; seconds by part, memory in bytes."""
    build, options = COSTS[name]
    torch.manual_seed(0)
    model, batch = build(device)
    own = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
    gpu = device.type == "cuda"
    if gpu:
        torch.linalg.cholesky(torch.eye(4, device=device))  # loads the libraries, which is not the measurement's cost
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    less: dict[str, Any] = {"search": False, "balance": False} if quick else {}
    found = readings(model, batch, scopes, **{**options, **less})
    taken = time.perf_counter() - begun
    peak = torch.cuda.max_memory_allocated() if gpu else 0
    return {
        "name": name,
        "options": {"scopes": scopes, **options, **less},
        "parameters": sum(p.numel() for p in model.parameters()),
        "own_bytes": own,
        "peak_bytes": peak,
        "ratio": round(peak / own, 3),
        "seconds": round(taken, 2),
        "parts": [dict(reading.seconds) for reading in found],
        "log10_upper": [spelled(reading.log_upper / math.log(10)) for reading in found],
        "log10_lower": [spelled(reading.log_lower / math.log(10)) for reading in found],
        "unknown": [f"{f.name}: {f.why}"[:200] for reading in found for f in reading.unknown][:8],
        "layers": [len(reading.layers) for reading in found],
    }


def spelled(value: float) -> float | str:
    """A number as JSON can hold it."""
    return round(value, 6) if math.isfinite(value) else str(value)


def costs(names: list[str], device: torch.device, scopes: list[str], quick: bool, out: Path) -> None:
    """Measure each network in a process of its own, and write all results to a file."""
    rows = []
    for name in names:
        argv = [sys.executable, "-m", "benchmarks.device", "one", name, "--device", str(device), "--scopes", *scopes]
        done = subprocess.run([*argv, *["--quick"] * quick], capture_output=True, text=True)
        last = done.stdout.strip().splitlines()[-1:] or [""]
        row = json.loads(last[0]) if done.returncode == 0 else {"name": name, "error": done.stderr[-1500:]}
        rows.append(row)
        print(json.dumps(row), flush=True)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    environment = {"torch": torch.__version__, "python": platform.python_version(), "device": where}
    out.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("equal", "costs", "one"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--scopes", nargs="+", default=["point", "global"])
    parser.add_argument("--quick", action="store_true", help="no balancing and no search: the layer table")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "equal":
        return int(equal(given.device) > 0)
    if given.what == "one":
        print(json.dumps(cost(given.names[0], given.device, given.scopes, given.quick)))
        return 0
    costs(given.names or list(COSTS), given.device, given.scopes, given.quick, given.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
