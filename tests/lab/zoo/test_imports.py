"""The zoo and the training loop stand on torch and numpy: no import of theirs, direct or not, loads anything else."""

from __future__ import annotations

import ast
from pathlib import Path

import normgauge

FOREIGN = {"torchvision", "sklearn", "timm", "transformers"}
ROOT = Path(normgauge.__file__).parent.parent


def file_of(name: str) -> Path | None:
    place = ROOT / name.replace(".", "/")
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def loaded(*names: str) -> set[str]:
    """Every module that importing these loads, as far as our own files say; imports inside functions do not count."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        path = file_of(name)
        if name in seen or path is None:
            seen.add(name)
            continue
        seen.add(name)
        waiting.append(name.rpartition(".")[0] or name)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                waiting += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return {name.partition(".")[0] for name in seen} | seen


def test_zoo_and_training_import_nothing_foreign() -> None:
    found = loaded("normgauge.lab.zoo", "normgauge.lab.training")
    assert {"torch", "numpy", "normgauge.lab.zoo.resnet", "normgauge.core.errors"} <= found
    assert not found & FOREIGN


def test_the_test_can_fail() -> None:
    assert "transformers" in loaded("normgauge.monitor.adapters.transformers")
