"""A run: it trains, goes on where it stopped, and hands over what is to be read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from experiments.than2025 import data, nets, plan, spool, store, worker
from experiments.than2025.run import Run
from experiments.than2025.steps import Stepper, make_optimizer
from experiments.than2025.together import drive as drive_together
from tests.experiments.conftest import drive


def without_times(run: Run) -> list[dict[str, object]]:
    return [{k: v for k, v in epoch.items() if k in ("epoch", "running", "train", "test")} for epoch in run.epochs]


@pytest.mark.parametrize("name", ["optimizers/mlp-sgd", "mlp-norms/mlp-batch"])
def test_a_run_that_is_stopped_ends_as_one_that_is_not(
    tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data, name: str
) -> None:
    spec = replace(specs[name], epochs=3, readings=())
    whole = Run(spec, tmp_path / "whole", digits)
    assert drive(whole)
    stops = 0
    while True:
        torch.manual_seed(99)  # whatever happened in between
        part = Run(spec, tmp_path / "parts", digits, stop=lambda: True)
        if drive(part):
            break
        stops += 1
        assert part.checkpoint.exists()
    assert stops == 2
    assert without_times(part) == without_times(whole)
    assert len(part.epochs) == 4 and part.epochs[-1]["test"][1] > 0.1
    assert not part.checkpoint.exists()
    stored = store.read_json(tmp_path / "parts" / "results" / f"{spec.slug}.json")
    assert stored["finished"] and len(stored["epochs"]) == 4
    assert "goes on after epoch 2" in (tmp_path / "parts" / "log.txt").read_text(encoding="utf-8")


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data) -> None:
    spec = replace(specs["nets/mlp-adam"], readings=())
    assert not drive(Run(spec, tmp_path, digits, stop=lambda: True))
    with pytest.raises(ValueError, match="other settings"):
        drive(Run(replace(spec, lr=0.5), tmp_path, digits))


def test_training_does_what_a_plain_loop_does(specs: dict[str, plan.Spec], digits: data.Data) -> None:
    spec = specs["mlp-norms/mlp-layer"]
    models = [nets.build(spec, digits.shape) for _ in range(2)]
    stepper = Stepper(models[0], make_optimizer(models[0], spec, torch.device("cpu")), digits, 200)
    assert stepper.steps == len(digits.labels) // 200
    assert not stepper.capture() and stepper.why == "no CUDA device"
    order = torch.randperm(len(digits.labels), generator=torch.Generator().manual_seed(3))[: stepper.order.numel()]
    stepper.begin(order)
    stepper.advance(stepper.steps)
    optimizer = torch.optim.Adam(models[1].parameters(), lr=spec.lr, weight_decay=spec.decay)
    total, hits = 0.0, 0
    for some in order.split(200):
        logits = models[1](digits.real(digits.train[some]))
        loss = torch.nn.functional.cross_entropy(logits, digits.labels[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, hits = total + float(loss.detach()), hits + int((logits.argmax(-1) == digits.labels[some]).sum())
    for ours, plain in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(ours, plain)
    assert stepper.means() == pytest.approx((total / stepper.steps, hits / len(order)), rel=1e-5)


class FakeGraph:
    """Stands in for a CUDA graph: what is captured runs at once, what is replayed is the step."""

    def __init__(self) -> None:
        self.replay = lambda: None


def fake_cuda(monkeypatch: pytest.MonkeyPatch, *, breaks: bool = False) -> None:
    @contextmanager
    def captured(graph: FakeGraph) -> Iterator[None]:
        yield
        if breaks:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    stream = SimpleNamespace(wait_stream=lambda other: None)
    stand_ins = {
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda chosen: nullcontext(),
        "synchronize": lambda: None,
        "CUDAGraph": FakeGraph,
        "graph": captured,
        "get_rng_state": lambda device: None,
        "set_rng_state": lambda state, device: None,
    }
    for name, value in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, value)


@pytest.mark.parametrize("resumed", [False, True], ids=["fresh", "resumed"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_capture_leaves_weights_statistics_and_optimizer_alone(
    specs: dict[str, plan.Spec], digits: data.Data, monkeypatch: pytest.MonkeyPatch, optimizer: str, resumed: bool
) -> None:
    spec = replace(specs["mlp-norms/mlp-batch"], optimizer=optimizer)
    pair = []
    for _ in range(2):
        model = nets.build(spec, digits.shape)
        pair.append(Stepper(model, make_optimizer(model, spec, torch.device("cpu")), digits, 200))
        if resumed:
            pair[-1].advance(2)
    fake_cuda(monkeypatch)
    subject, plain = pair
    subject.device = torch.device("cuda")
    assert subject.capture() and subject.captured
    assert all(
        torch.equal(a, b)
        for a, b in zip(subject.model.state_dict().values(), plain.model.state_dict().values(), strict=True)
    )
    subject.graph = None  # steps from here on, from the state the capture left
    for stepper in pair:
        stepper.begin(None)
        stepper.advance(3)
    assert subject.means() == plain.means()
    assert all(
        torch.equal(a, b)
        for a, b in zip(subject.model.state_dict().values(), plain.model.state_dict().values(), strict=True)
    )


def test_a_capture_that_fails_says_why(
    specs: dict[str, plan.Spec], digits: data.Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nets.build(specs["nets/mlp-adam"], digits.shape)
    stepper = Stepper(model, make_optimizer(model, specs["nets/mlp-adam"], torch.device("cpu")), digits, 200)
    fake_cuda(monkeypatch, breaks=True)
    stepper.device = torch.device("cuda")
    assert not stepper.capture()
    assert stepper.why == "operation not permitted when stream is capturing"


def test_optimizers_have_the_settings_of_the_run(specs: dict[str, plan.Spec]) -> None:
    model = torch.nn.Linear(2, 2)
    for name, kind in {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}.items():
        made = make_optimizer(model, replace(specs["nets/mlp-adam"], optimizer=name, decay=0.3), torch.device("cpu"))
        assert type(made) is kind
        assert (made.param_groups[0]["lr"], made.param_groups[0]["weight_decay"]) == (1e-3, 0.3)
    with pytest.raises(plan.PlanError, match="lion"):
        make_optimizer(model, replace(specs["nets/mlp-adam"], optimizer="lion"), torch.device("cpu"))


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data) -> None:
    run = Run(replace(specs["optimizers/mlp-sgd"], norm="none", lr=1e12, readings=()), tmp_path, digits)
    assert drive(run)
    assert run.epochs[-1] == {"epoch": 1, "diverged": True, "running": run.epochs[-1]["running"]}
    stored = store.read_json(tmp_path / "results" / f"{run.spec.slug}.json")
    assert stored["epochs"][-1]["running"][0] in ("nan", "inf")


def test_runs_side_by_side_are_the_runs_by_themselves(
    tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data
) -> None:
    chosen = [
        replace(specs[name], readings=()) for name in ("nets/mlp-adam", "mlp-norms/mlp-rms", "mlp-norms/mlp-group")
    ]
    alone = [Run(spec, tmp_path / "alone", digits) for spec in chosen]
    assert all(drive(run) for run in alone)
    together = [Run(spec, tmp_path / "together", digits) for spec in chosen]
    broken = Run(replace(chosen[0], init="none"), tmp_path / "together", digits)
    ended: list[tuple[str, object]] = []
    drive_together(
        iter([together[0], broken, *together[1:]]),
        2,
        lambda run, finished: ended.append((run.spec.name, finished)),
        lambda run, error: ended.append((run.spec.name, type(error))),
    )
    assert [without_times(run) for run in together] == [without_times(run) for run in alone]
    assert sorted(ended, key=str) == sorted(
        [*((s.name, True) for s in chosen), ("nets/mlp-adam", plan.PlanError)], key=str
    )


def test_checkpoints_are_read_in_order_of_importance(
    tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data
) -> None:
    folder = tmp_path / "spool"
    images = digits.real(digits.test[:4])
    for name in ("mlp-norms/mlp-batch", "nets/mlp-adam"):
        model = nets.build(specs[name], digits.shape)
        for epoch in (0, 1, 2):
            spool.put(folder, replace(specs[name], readings=(0, 1, 2)), epoch, model, images)
    taken = [spool.claim(folder) for _ in range(6)]
    assert spool.claim(folder) is None
    items = [spool.read(path) for path in taken if path is not None]
    first, second = "nets/mlp-adam", "mlp-norms/mlp-batch"
    wanted = [(first, 2), (second, 2), (first, 0), (second, 0), (first, 1), (second, 1)]
    assert [(item.spec.name, item.epoch) for item in items] == wanted
    assert spool.waiting(folder) == 6
    spool.release(folder)
    assert spool.claim(folder) == taken[0]
    assert spool.waiting(tmp_path / "nowhere") == 0


def test_a_worker_writes_what_the_instrument_says(
    tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data
) -> None:
    import normgauge as ng

    spec = specs["mlp-norms/mlp-batch"]
    model = nets.build(spec, digits.shape)
    images = digits.real(digits.test[:8])
    spool.put(tmp_path / "spool", spec, 2, model, images)
    (tmp_path / "spool" / "000-damaged.wait").write_bytes(b"no checkpoint")
    assert worker.main([str(tmp_path), "--once"]) == 0
    written = json.loads((tmp_path / "readings" / f"{spec.slug}@002.json").read_text(encoding="utf-8"))
    reading = ng.gauge(model.eval(), images, scope="global", search=False)
    assert written["global"]["upper"] == pytest.approx(reading.log10_upper, rel=1e-4)
    assert written["global"]["published"]["log10_P_w"] == pytest.approx(reading.published["log10_P_w"], rel=1e-4)
    assert written["point"]["evidence"] == "proved"
    assert spool.waiting(tmp_path / "spool") == 0
    assert "no spooled checkpoint" in (tmp_path / "log.txt").read_text(encoding="utf-8")


def test_a_reading_that_fails_is_written_down(
    tmp_path: Path, specs: dict[str, plan.Spec], digits: data.Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(item: spool.Item) -> dict[str, object]:
        raise RuntimeError("no memory")

    spec = specs["nets/mlp-adam"]
    monkeypatch.setattr(worker, "readings", broken)
    spool.put(tmp_path / "spool", spec, 0, nets.build(spec, digits.shape), digits.real(digits.test[:2]))
    (tmp_path / worker.STOP).touch()
    assert worker.main([str(tmp_path)]) == 0
    assert spool.waiting(tmp_path / "spool") == 1  # told to stop before it began
    (tmp_path / worker.STOP).unlink()
    assert worker.main([str(tmp_path), "--once"]) == 0
    assert store.read_json(tmp_path / "readings" / f"{spec.slug}@000.json")["error"] == "RuntimeError: no memory"


def test_numbers_are_short_and_strict(tmp_path: Path) -> None:
    store.write_json(
        tmp_path / "a" / "b.json", {"x": [1 / 3, float("inf"), 7], "y": float("nan"), "columns": {"z": [2 / 3]}}
    )
    text = (tmp_path / "a" / "b.json").read_text(encoding="utf-8")
    assert text == '{"x":[0.33333,"inf",7],"y":"nan","columns":{"z":[0.667]}}\n'
    assert store.claim(tmp_path / "c" / "d") and not store.claim(tmp_path / "c" / "d")
    shutil.rmtree(tmp_path / "a")
