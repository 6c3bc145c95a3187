"""Which files a network is built from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from normgauge.lab.sweep.building import read_files
from normgauge.lab.sweep.drive import Folder
from normgauge.lab.sweep.files import file_digest, read_imports, write_imports
from normgauge.lab.sweep.opened import files_opened, own_files
from normgauge.lab.sweep.space import expand_trials
from tests.lab.sweep.made import config


def names(tmp_path: Path, opened: dict[str, None]) -> list[str]:
    files = own_files(opened, tmp_path, tmp_path / "trial")
    return [os.path.relpath(file, tmp_path) for file in files]


def test_what_is_read_counts(tmp_path, monkeypatch):
    """Read in any way, also where it is not there; not what is only written, nor what another opens afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    torch.save({"a": torch.ones(2)}, "a.pt")
    for name in ("text", "low", "raw", "both", "later", "elsewhere/read_while_built.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("number = 1\n")
    with files_opened() as opened:
        torch.load("a.pt", weights_only=True, mmap=True)
        Path("text").read_text()
        os.close(os.open(b"low", os.O_RDONLY))
        open("both", "r+").close()
        open("written", "w").close()
        with pytest.raises(OSError, match="absent"):
            Path("absent").read_text()
        with pytest.raises(ValueError, match="null"):
            Path("no/na\0me").read_text()
        __import__("read_while_built")
        open(os.devnull).close()
        Path(os.__file__).read_bytes()
        Path(pytest.__file__).read_bytes()
        Path(files_opened.__code__.co_filename).read_bytes()
        if Path("/proc/cpuinfo").is_file():
            Path("/proc/cpuinfo").read_text()
    Path("later").read_text()
    assert names(tmp_path, opened) == ["a.pt", "absent", "both", "elsewhere/read_while_built.py", "low", "text"]


def test_the_trial_and_an_environment_do_not_count(tmp_path, monkeypatch):
    """A virtual environment may lie in the user's folder, and the user's folder in that of an installation."""
    for name in ("trial/log", "env/lib/part", "src/weights", "lib/site-packages/part"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    opened = {
        str(tmp_path / name): None for name in ("trial/log", "env/lib/part", "src/weights", "lib/site-packages/part")
    }
    opened |= {str(tmp_path / name): None for name in ("src", "src/__pycache__/kernel.nbi")}  # neither counts
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    assert names(tmp_path, opened) == ["src/weights"]
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert names(tmp_path, opened) == ["env/lib/part", "src/weights"]


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_a_link_is_the_file_behind_it_now(tmp_path):
    (tmp_path / "one").write_text("1")
    (tmp_path / "two").write_text("2")
    link = tmp_path / "latest"
    link.symlink_to("one")
    with files_opened() as opened:
        link.read_text()
    assert read_files(opened, {"network.build": "a.py:b"}, tmp_path, tmp_path / "t") == {"latest": file_digest(link)}
    before = file_digest(link)
    link.unlink()
    link.symlink_to("two")
    assert file_digest(link) != before
    (tmp_path / "two").unlink()
    assert names(tmp_path, opened) == ["latest"]  # leads nowhere as yet


def test_a_file_that_comes_or_goes_is_a_change(tmp_path):
    read = config(tmp_path)
    (trial,) = expand_trials(read)
    folder = Folder(tmp_path / "out", read.folder, {})
    place = folder.begin(trial)
    (place / "result.json").write_text('{"schema": 1, "values": {}, "notes": [], "losses": []}')
    write_imports(place, {"perhaps": file_digest(tmp_path / "perhaps")})
    assert not folder.outcome(trial).outdated
    (tmp_path / "perhaps").write_text("1")
    assert folder.outcome(trial).outdated


def test_names_of_any_bytes_and_large_files(tmp_path):
    odd = os.fsdecode(b"\xff.pt")
    write_imports(tmp_path, {odd: "0"})
    assert read_imports(tmp_path) == {odd: "0"} and file_digest(Path("a\0b")) == ""
    large = tmp_path / "large"
    large.write_bytes(bytes(2 << 20))
    before = file_digest(large)
    assert before == file_digest(large)
    large.write_bytes(bytes(2 << 20) + b"1")
    assert file_digest(large) != before
