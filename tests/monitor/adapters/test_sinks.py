"""What the trackers keep is what the run file says."""

from __future__ import annotations

import json
import math
import socket
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from normgauge.core import store
from normgauge.core.errors import InputError
from normgauge.core.store.numbers import read_number
from normgauge.monitor.adapters.scalars import COLUMNS, Scalars, alarm_text
from tests.monitor.adapters.training import trained

pytestmark = pytest.mark.adapters
LAYERS = ("0", "1", "3")


def expected(path: str) -> dict[str, list[tuple[int, float]]]:
    """Every curve a sink should hold, from the run file."""
    run = store.read(path)
    curves = {name: run.total(name) for name in (*run.header["totals"], "loss", "loss_mean", "loss_max", "lr")}
    curves |= {f"{column}/{layer}": run.series(column, layer) for column in COLUMNS for layer in LAYERS}
    return {f"normgauge/{name}": points for name, points in curves.items() if points}


def check(path: str, found: dict[str, list[tuple[int, float]]]) -> None:
    wanted = expected(path)
    assert {"normgauge/log10_P_w", "normgauge/norm_upper/0", "normgauge/sigma_min/1"} <= set(wanted)
    assert set(wanted) <= set(found)
    for name, points in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        for (_, mine), (_, theirs) in zip(found[name], points, strict=True):
            assert math.isclose(mine, theirs, rel_tol=1e-5) or (math.isnan(mine) and math.isnan(theirs)), name


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from normgauge.monitor.adapters.tensorboard import TensorBoardSink

    path = trained(tmp_path / "run", [TensorBoardSink(tmp_path / "board")], last_loss=math.nan)
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    check(path, found)
    (text,) = (e.tensor_proto.string_val[0].decode() for e in events.Tensors("normgauge/alarms/text_summary"))
    assert text.startswith("step 4: nan")


def test_a_writer_of_ones_own_stays_open(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    from normgauge.monitor.adapters.tensorboard import TensorBoardSink

    writer = SummaryWriter(str(tmp_path / "board"))
    trained(tmp_path / "run", [TensorBoardSink(writer, columns=(), prefix="")], steps=1)
    assert writer.all_writers
    writer.close()


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
    from wandb.proto import wandb_internal_pb2

    (file,) = Path(folder).parent.glob("*.wandb")
    curves: dict[str, list[tuple[int, float]]] = {}
    alarms = []
    for raw in wandb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(raw)
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if "normgauge/alarm" in items:
            alarms.append(items["normgauge/alarm"])
        for key, value in items.items():
            if key not in ("normgauge/step", "normgauge/alarm") and key.startswith("normgauge/"):
                curves.setdefault(key, []).append((items["normgauge/step"], spelled(value)))
    return curves, alarms


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a file laid out as a LevelDB log: blocks of 32 KiB, parts with checksum, length and type."""
    place, held = 7, b""  # behind the file's own header
    while place + 7 <= len(data):
        if place % 32768 > 32768 - 7:
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
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


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    from normgauge.monitor.adapters.mlflow import MlflowSink

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
        with pytest.raises(InputError, match="start_run"):
            MlflowSink()
        with mlflow.start_run() as run:
            path = trained(tmp_path / "run", [MlflowSink()], last_loss=math.nan)
        client = mlflow.MlflowClient()
        kept = client.get_run(run.info.run_id)
        names = kept.data.metrics
        found = {n: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, n)] for n in names}
    check(path, found)
    assert kept.data.tags["normgauge.alarm.1"].startswith("step 4: nan")


def test_layers_that_came_later_get_their_names():
    scalars = Scalars(("update",), prefix="p/")
    scalars.learn({"kind": "header", "layers": [{"name": "a"}]})
    scalars.learn({"kind": "layers", "layers": [{"name": "b"}]})
    line = {"kind": "step", "totals": {"gradient": None}, "columns": {"update": [1.0, 2.0]}}
    assert scalars.of(line) == {"p/update/a": 1.0, "p/update/b": 2.0}


def test_an_alarm_of_the_whole_network_names_no_layer():
    alarm = {"step": 3, "alarm": "nan", "layer": "", "sentence": "the loss is nan."}
    assert alarm_text(alarm) == "step 3: nan: the loss is nan."
    assert alarm_text({**alarm, "layer": "fc"}).startswith("step 3: nan in fc:")
