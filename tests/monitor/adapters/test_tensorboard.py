"""What TensorBoard keeps is what the run file says."""

from __future__ import annotations

import math

import pytest

from tests.monitor.adapters.training import check, trained

pytestmark = pytest.mark.adapters


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
