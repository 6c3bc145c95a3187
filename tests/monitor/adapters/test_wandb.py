"""What Weights & Biases keeps offline is what the run file says, and nothing is sent."""

from __future__ import annotations

import json
import math
import socket
import struct
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from normgauge.core.store.numbers import read_number
from tests.monitor.adapters.training import check, trained

pytestmark = pytest.mark.adapters


def test_wandb_offline_keeps_the_numbers_and_opens_no_connection(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from normgauge.monitor.adapters.wandb import WandbSink

    asked = refuse_the_network(monkeypatch)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_machine_info=True, disable_git=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = wandb.init(project="t", dir=tmp_path, settings=settings)
        path = trained(tmp_path / "run", [WandbSink(run)], last_loss=math.inf)
        folder = run.dir
        run.finish()
    curves, alarms = wandb_history(folder)
    check(path, curves)
    assert len(alarms) == 1 and alarms[0].startswith("step 4: nan")
    assert asked == []


def wandb_history(folder: str) -> tuple[dict[str, list[tuple[int, float]]], list[str]]:
    """Curves and alarms from the file an offline run leaves."""
    curves: dict[str, list[tuple[int, float]]] = {}
    alarms = []
    for record in finished_records(folder):
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if "normgauge/alarm" in items:
            alarms.append(items["normgauge/alarm"])
        for key, value in items.items():
            if key not in ("normgauge/step", "normgauge/alarm") and key.startswith("normgauge/"):
                curves.setdefault(key, []).append((items["normgauge/step"], spelled(value)))
    return curves, alarms


def finished_records(folder: str) -> list[Any]:
    """All records of a run; wandb's own process may still be writing when ``finish`` returns."""
    from wandb.proto import wandb_internal_pb2

    (file,) = Path(folder).parent.glob("*.wandb")
    until = time.monotonic() + 30
    found: list[Any] = []
    while not any(record.HasField("exit") for record in found):
        assert time.monotonic() < until, "the run has no end"
        time.sleep(0.02)
        found = [wandb_internal_pb2.Record.FromString(raw) for raw in wandb_records(file.read_bytes())]
    return found


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a file laid out as a LevelDB log: blocks of 32 KiB, parts with checksum, length and type."""
    place, held = 7, b""  # behind the file's own header
    while place + 7 <= len(data):
        if place % 32768 > 32768 - 7:
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        if place + 7 + size > len(data):
            return  # still being written
        held += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield held
            held = b""


def spelled(value: object) -> float:
    names = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
    return names[value] if isinstance(value, str) and value in names else read_number(value)


def refuse_the_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Connections to other machines are refused and written down."""
    asked: list[object] = []
    real = socket.socket.connect

    def connect(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"
        if host not in ("localhost", "127.0.0.1", "::1"):
            asked.append(address)
            raise OSError("no network in this test")
        real(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    return asked
