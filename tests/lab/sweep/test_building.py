"""What cannot run is told before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from normgauge.core.errors import NormgaugeError
from normgauge.lab.sweep.building import builder, check_trials, imported_files, splits
from normgauge.lab.sweep.files import file_digest
from normgauge.lab.sweep.space import expand_trials
from tests.lab.sweep.made import HEAD, config


def check(tmp_path, *parts: str, old: str = "", new: str = "", here: bool = True) -> str:
    read = config(tmp_path, *parts, head=HEAD.replace(old, new) if old else HEAD)
    try:
        check_trials(expand_trials(read), read.folder, here=here)
    except NormgaugeError as error:
        return str(error)
    return ""


def test_what_is_right_passes(tmp_path):
    grid = '[grid]\n"network.options.norm" = ["batch", "none", "rms"]\n"data.set" = ["digits"]'
    assert check(tmp_path, grid) == ""


MLP = 'build = "mlp"'
SIZES = "sizes = [64, 8, 10]"
WRONG = {
    "a network": (MLP, 'build = "mpl"', "no network called 'mpl'; nearest: mlp (or file.py:function)"),
    "an option": (SIZES, SIZES + "\nnrom = 'batch'", "mlp has no option 'nrom'; nearest: norm"),
    "an option's value": (SIZES, SIZES + "\nnorm = 'bath'", "norm='bath' is not known"),
    "an option's kind": (SIZES, "sizes = 3", "network.options: mlp cannot be built: TypeError"),
    "inputs that do not fit": (SIZES, "sizes = [65, 8, 10]", "mlp does not take inputs of shape [64] (digits)"),
    "too few outputs": (SIZES, "sizes = [64, 8, 9]", "mlp has 9 outputs, and digits has 10 classes"),
    "a data set": ("limit = 48", "set = 'digit'", "no data set called 'digit'; nearest: digits"),
    "a shape": ("limit = 48", "shape = [3, 8, 8]", "data.shape: [3, 8, 8] does not hold the 64 numbers of digits"),
    "a device": ("epochs = 2", "epochs = 2\ndevice = 'gpu'", "expected cpu, cuda, cuda:1 or mps, got 'gpu'"),
    "no such device": ("epochs = 2", "epochs = 2\ndevice = 'xpu'", "there is no xpu here"),
    "no file": (MLP, 'build = "nowhere.py:build"', "nowhere.py: expected a Python file, got no such file"),
    "no function": (MLP, 'build = "nets.py:bild"', "has no 'bild'; its functions: slow, build"),
    "no function but a module": (MLP, 'build = "nets.py:os"', "nets.py:os is no function"),
    "an option of a function": (
        MLP,
        'build = "nets.py:build"',
        "nets.py:build has no option 'sizes'; known: how, seconds",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_told(tmp_path, case):
    old, new, message = WRONG[case]
    assert message in check(tmp_path, old=old, new=new)


def test_an_argument_that_is_missing(tmp_path):
    (tmp_path / "own.py").write_text("def build(width, *, depth, **more): pass")
    assert "own.py:build needs width, depth" in check(tmp_path, old=MLP, new='build = "own.py:build"')


def test_a_cluster_may_have_what_this_machine_has_not(tmp_path):
    assert check(tmp_path, old="epochs = 2", new="epochs = 2\ndevice = 'xpu'", here=False) == ""


def test_data_that_are_not_there_are_told_with_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.delenv("NORMGAUGE_DATA", raising=False)
    assert "To get the data:" in check(tmp_path, old="limit = 48", new="set = 'mnist'")
    told = check(tmp_path, old="limit = 48", new="set = 'mnist'\ndata_dir = 'empty'")
    assert str(tmp_path / "empty") in told and "To get the data:" in told


def test_data_are_found_from_the_config(tmp_path):
    images = np.arange(6 * 28 * 28, dtype=np.uint8).reshape(6, 28, 28)
    labels = np.arange(6, dtype=np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:4], y_test=labels[:4])
    head = HEAD.replace("limit = 48", "set = 'mnist'\ndata_dir = '.'\nlimit = 3\nshape = [784]")
    read = config(tmp_path, head=head.replace("[64, 8, 10]", "[784, 8, 10]"))
    (trial,) = expand_trials(read)
    check_trials([trial], read.folder, here=True)
    train, test = splits(trial.settings, read.folder)
    assert train.inputs.shape == (3, 784) and len(test) == 4


def test_none_is_spelled_in_words(tmp_path):
    read = config(tmp_path, '[grid]\n"network.options.norm" = ["none", "layer"]')
    plain, layer = (builder(trial.settings, read.folder)() for trial in expand_trials(read))
    assert "LayerNorm" not in str(plain) and "LayerNorm" in str(layer)


def test_the_files_a_network_is_built_from(tmp_path, monkeypatch):
    """The user's own below the folder of their file, not what is installed there; nothing for a network of the zoo."""
    monkeypatch.syspath_prepend(str(tmp_path / "env/site-packages"))
    for name in ("parts_of_it/sizes.py", "parts_of_it/__init__.py", "env/site-packages/installed_there.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("width = 8\n")
    (tmp_path / "entry.py").write_text(
        "import installed_there\n\ndef build():\n    from parts_of_it.sizes import width\n    return width\n"
    )
    settings = {"network.build": "entry.py:build"}
    assert builder(settings, tmp_path)() == 8
    found = imported_files(settings, tmp_path)
    assert list(found) == ["entry.py", "parts_of_it/__init__.py", "parts_of_it/sizes.py"]
    assert found["entry.py"] == file_digest(tmp_path / "entry.py") != found["parts_of_it/sizes.py"]
    assert imported_files({"network.build": "mlp"}, tmp_path) == {}
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "parts_of_it/sizes.py" in imported_files({"network.build": "parts_of_it.sizes:build"}, tmp_path)
