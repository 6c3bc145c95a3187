"""Work that is replayed writes down what it would have written if it were done again, and only where it may be."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normgauge as ng
from normgauge.core import store
from normgauge.monitor import instruments, launched
from normgauge.monitor.launched import Launches, Piece, remember
from normgauge.monitor.layers import find_layers
from normgauge.monitor.schedule import Level
from normgauge.monitor.sheet import Sheet, fetch_numbers
from tests.monitor.gpts import SmallGPT


class Again:
    """What a graph does: the same work on the same tensors, leaving its numbers where they were."""

    def __init__(self, piece: Piece, work: Any) -> None:
        self.piece, self.work, self.made = piece, work, 0

    def replay(self) -> None:
        other = Piece()
        remember(other, self.work)
        assert other.cells == self.piece.cells
        self.made += 1
        if self.piece.packed is not None and other.packed is not None:
            self.piece.packed.copy_(other.packed)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Again]:
    """Graphs of a device that is not there."""
    made: list[Again] = []

    def capture(self: Launches, piece: Piece, work: Any) -> None:
        state = [tensor.clone() for tensor in piece.held]
        remember(piece, work)  # a capture runs nothing: what it changed is put back
        for tensor, old in zip(piece.held, state, strict=True):
            tensor.data.copy_(old)
        piece.graph = Again(piece, work)
        made.append(piece.graph)

    monkeypatch.setattr(Launches, "_capture", capture)
    return made


def delivered(sheet: Sheet) -> Sheet:
    fetch_numbers(sheet, lambda sheet, reading, proving: None).deliver()
    return sheet


def test_work_is_replayed_from_the_third_time_on_and_sees_new_numbers(graphs: list[Again]) -> None:
    weight, launches, done = torch.ones(3), Launches(), 0

    def work(sheet: Sheet, held: bool) -> None:
        nonlocal done
        done += 1
        sheet.put_column([2, 5], "gradient", torch.stack([weight.sum(), weight.max()]))

    for value in (1.0, 2.0, 3.0, 4.0):
        weight.fill_(value)
        sheet = Sheet()
        launches.do("a", None, [weight], work, sheet)
        assert delivered(sheet).layers == {2: {"gradient": 3 * value}, 5: {"gradient": value}}
    assert len(graphs) == 1 and graphs[0].made == 2


def test_another_place_or_setting_is_done_as_it_is(graphs: list[Again]) -> None:
    launches, kept = Launches(), []
    for turn in range(8):
        tensor = torch.full((2,), float(turn))
        kept.append(tensor)  # so that each is elsewhere
        sheet = Sheet()

        def work(sheet: Sheet, held: bool, tensor: Tensor = tensor) -> None:
            sheet.put_column([0], "gradient", tensor.sum()[None])

        launches.do("a", None, [tensor], work, sheet)
        assert delivered(sheet).layers[0]["gradient"] == 2.0 * turn
    for turn in range(8):
        launches.do("b", turn, [kept[0]], lambda s, held: None, Sheet())
    assert graphs == []


def test_what_cannot_be_captured_is_done_as_it_is_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Launches, "_capture", refuse)
    launches = Launches()
    for _ in range(5):
        sheet = Sheet()
        launches.do("a", None, [], lambda s, held: s.put_column([0], "gradient", torch.ones(1)), sheet)
        assert delivered(sheet).layers[0]["gradient"] == 1.0
    assert "not permitted" in launches.why


def lines_of(model: nn.Module, batch: Any, folder: Any, steps: int) -> list[Any]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    monitor = ng.Monitor(model, folder, every=1, optimizer=optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        out = model(batch)
        loss = out.float().square().mean()
        loss.backward()
        optimizer.step()
        monitor.step(loss=loss)
    monitor.close()
    run = store.read(monitor.path)
    assert not run.notes
    return [{k: line[k] for k in ("step", "columns")} | {"heads": line.get("heads")} for line in run.steps]


def nets() -> list[tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 150), nn.BatchNorm1d(150), nn.ReLU(), nn.Linear(150, 140), nn.LayerNorm(140))
    return [(plain, torch.randn(32, 6)), (SmallGPT(), torch.randint(11, (2, 8)))]


@pytest.mark.parametrize("which", [0, 1])
def test_a_replayed_training_writes_what_one_without_writes(
    which: int, graphs: list[Again], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    plain = lines_of(*nets()[which], tmp_path / "plain", 70)

    monkeypatch.setattr(instruments.Instruments, "_launches_all", property(lambda self: not self._launches.why))
    assert lines_of(*nets()[which], tmp_path / "replayed", 70) == plain
    assert sum(graph.made for graph in graphs) > 100
    assert launched.FIRST == 2


def test_alert_readings_in_between_leave_the_scales_of_the_others(
    graphs: list[Again], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruments.Instruments, "_launches_all", property(lambda self: not self._launches.why))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 150, bias=False), nn.BatchNorm1d(150))
    told = instruments.Instruments(model, find_layers(model), [], lambda error: pytest.fail(str(error)))
    capture, replay = Launches._capture, Again.replay

    def captured(self: Launches, piece: Piece, work: Any) -> None:
        capture(self, piece, work)
        piece.graph.scales = {key: dict(own) for key, own in told._scales.items()}

    def replayed(
        self: Any,
    ) -> None:  # of what Python keeps a graph changes nothing, only the numbers in its own tensors
        before = dict(told._scales)
        replay(self)
        for key, own in told._scales.items():
            for row, scale in own.items() if own is not before.get(key) else ():
                self.scales[key][row].copy_(scale)
        told._scales = before

    monkeypatch.setattr(Launches, "_capture", captured)
    monkeypatch.setattr(Again, "replay", replayed)
    batch = torch.randn(32, 6)
    for level, gain in [*[(Level.PLAIN, 1.0)] * 5, *[(Level.ALERT, 2.0)] * 5, *[(Level.PLAIN, 4.0)] * 4]:
        with torch.no_grad():
            model[1].weight.fill_(gain)
        told.arm(level)
        model(batch)
        found = delivered(told.read()).layers
        if level is Level.PLAIN:
            spread = batch @ model[0].weight.detach().T
            folded = gain * model[0].weight.detach() / (spread.var(0, correction=0) + 1e-5).sqrt()[:, None]
            assert found[0]["folded"] == pytest.approx(torch.linalg.matrix_norm(folded, 2).item(), rel=0.02)
    assert sum(graph.made for graph in graphs) > 4
    told.close()
