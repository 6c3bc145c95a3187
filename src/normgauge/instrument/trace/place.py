"""Where a model lives: the clock that counts its work, its random numbers, and the memory that is free there."""

from __future__ import annotations

import os
import time

import torch
from torch import Tensor

TorchRandom = tuple[Tensor, ...]


def knows_float64(device: torch.device) -> bool:
    """Whether a device computes in float64."""
    return device.type != "mps"


def seconds_on(device: torch.device) -> float:
    """Return the seconds of a clock that counts the work of a device: CPU time, or wall time once all work is done."""
    if device.type == "cpu":
        return time.process_time()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def torch_random() -> TorchRandom:
    """Return the states of torch's random numbers: those of the CPU, then those of every GPU in use."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return (torch.get_rng_state(), *devices)


def set_torch_random(states: TorchRandom) -> None:
    """Restore the states that `torch_random` returned."""
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])


def drawn_since(states: TorchRandom) -> bool:
    """Whether torch's random numbers were used since `torch_random`."""
    return not all(torch.equal(before, now) for before, now in zip(states, torch_random(), strict=False))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error says that memory ran out, on a device or in main memory."""
    full = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return full or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


def free_memory(device: torch.device) -> float:
    """Return the free bytes of a device's memory; infinite where the system does not say."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch's own to give out
        return float(torch.cuda.mem_get_info(device)[0] + kept)
    try:
        with open("/proc/meminfo") as lines:
            return 1024 * next(float(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
