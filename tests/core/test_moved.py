"""Modules that moved are found under their old paths for one release, once and with a warning."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import pytest

from normgauge.core.moved import MOVED, new_path

AS_ATTRIBUTE = "import normgauge; m = normgauge.store.lines"


@pytest.mark.parametrize("old", MOVED)
def test_every_old_path_has_a_new_module(old):
    assert importlib.util.find_spec(f"normgauge.{MOVED[old]}") is not None


@pytest.mark.parametrize(
    "statement", ["import normgauge.store.lines as m", "from normgauge.store import lines as m", AS_ATTRIBUTE]
)
def test_an_old_path_gives_the_module_itself_and_a_warning_that_names_the_new_one(statement):
    script = f"""
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {statement}
import normgauge.core.store.lines as new
assert m is new and new.__spec__.name == new.__name__ == "normgauge.core.store.lines", new.__spec__
print(caught[0].category.__name__, caught[0].message)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = "FutureWarning normgauge.store is now normgauge.core.store; the old path goes in the next release"
    assert done.stdout.strip() == said


def test_what_did_not_move_is_left_alone():
    assert new_path("normgauge.core.bound") is None
    assert new_path("torch.rules") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("normgauge.nothing_of_that_name")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("normgauge.instrument.rules.nothing_of_that_name")
