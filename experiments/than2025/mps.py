"""NVIDIA's multi-process service, where it is there: kernels of several processes run at once instead of in turns."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from experiments.than2025 import store

CONTROL = "nvidia-cuda-mps-control"
PROBE = "import torch; print(float(torch.ones(2, device='cuda').sum()))"
PATIENCE = 40.0


def start(state: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Start the service and see that a process can use it.

    Args:
        state: folder for its pipes.
        environment: of the processes that will use it.

    Returns:
        The variables its users need; none where it is missing or does not work.
    """
    control = shutil.which(CONTROL)
    if control is None:
        store.log(state, "mps: not installed; processes share the device in turns")
        return {}
    folder = state.resolve() / "mps"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    try:
        subprocess.run([control, "-d"], env={**environment, **wanted}, check=True, timeout=PATIENCE)
        probe = [sys.executable, "-c", PROBE]
        subprocess.run(probe, env={**environment, **wanted}, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        store.log(state, f"mps: does not work here ({error}); processes share the device in turns")
        stop({**environment, **wanted})
        return {}
    store.log(state, "mps: on")
    return wanted


def stop(environment: Mapping[str, str]) -> None:
    """End the service if ``start`` began it."""
    control = shutil.which(CONTROL)
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" not in environment:
        return
    try:
        subprocess.run([control], input=b"quit\n", env=dict(environment), timeout=PATIENCE, check=False)
    except (OSError, subprocess.SubprocessError):
        return  # it ends with the machine
