"""The zoo stands on torch and numpy: a run in its own process shows what it pulls in."""

from __future__ import annotations

import subprocess
import sys

FOREIGN = ("torchvision", "sklearn", "timm", "transformers")


def loaded(code: str) -> set[str]:
    listing = f"import sys; {code}; print(' '.join(name for name in {FOREIGN} if name in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    )


def test_zoo_and_training_import_nothing_foreign() -> None:
    assert loaded("import normgauge.lab.zoo, normgauge.lab.training") == set()


def test_the_test_can_fail() -> None:
    assert loaded("sys.modules['timm'] = sys") == {"timm"}
