"""The monitor: two lines in a training loop."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor, nn

from normgauge import store
from normgauge.errors import InputError
from normgauge.monitor.alarms import Alarm
from normgauge.monitor.budget import Account
from normgauge.monitor.columns import COLUMNS, TOTALS, described, totals
from normgauge.monitor.fetch import Floats, Pending, fetch
from normgauge.monitor.instruments import Instruments
from normgauge.monitor.layers import find_layers
from normgauge.monitor.watch import Watch
from normgauge.version import __version__

log = logging.getLogger("normgauge")

DENSE_LINES = 200
"""Every reading of this many first steps is written; then lines are at least step/500 apart."""

PATIENCE = 3
"""Failures of the instrument itself after which it stops measuring."""

LOSS = -1
"""Row of a sheet that holds the losses since the last one, by step."""

FIRST_SECONDS = 1.0
"""Most time the first proofs may take when a monitor is made."""


class Monitor:
    """Watches a network while it trains, for a share of the time that is set beforehand.

    >>> import torch, tempfile, normgauge
    >>> from normgauge import store
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    >>> monitor = normgauge.Monitor(model, tempfile.mkdtemp(), every=1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     loss = model(torch.randn(16, 4)).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     monitor.step(loss=loss, lr=0.1)
    >>> monitor.close()
    >>> [line["step"] for line in store.read(monitor.path).steps]
    [1, 2, 3]

    Call ``step`` once after each optimizer step and before the gradients are cleared. It never raises, never waits for a
    device and keeps no graph. The file it writes is read by ``normgauge watch`` and ``normgauge report``.

    Args:
        model: the network; wrapped in DistributedDataParallel, FSDP2 or torch.compile is fine.
        path: a folder for the run, or a file name ending in ``.jsonl``.
        budget: share of the training time that measuring may take.
        every: measure everything at every so many steps instead, whatever it costs.
        optimizer: where to read the learning rate of each parameter, when ``step`` is not told.
        resume: go on with the newest run of this path, if there is one.
        batch: inputs for full readings, as ``normgauge.gauge`` takes them.
        readings: take a full reading every so many steps; it takes its own time, which ``normgauge.gauge`` shows.
        on_alarm: called with each ``Alarm``.
        note: anything to keep in the header, such as the settings of the run.

    Raises:
        InputError: if the model has no parameters, or is wrapped in nn.DataParallel.
        StoreError: if the file cannot be written.
    """

    def __init__(
        self,
        model: nn.Module,
        path: str | os.PathLike[str],
        budget: float = 0.03,
        *,
        every: int | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        resume: bool = False,
        batch: Any = None,
        readings: int | None = None,
        on_alarm: Callable[[Alarm], None] | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        _check(model, budget, every, readings, batch)
        self._model, self._every, self._readings, self._batch = model, every, readings, batch
        self._on_alarm = on_alarm
        self._failures = 0
        self._said: set[str] = set()
        self._pending: list[Pending] = []
        self._losses: list[tuple[int, Any]] = []
        self._since_line: list[float] = []
        self._last_line = 0
        self._cost = 0.0  # seconds of the last reading
        self._armed = False
        self._last_call: float | None = None
        share = budget / 2 if every is None else 0.0
        self._reading, self._proving = Account(share), Account(budget / 2)
        self._instruments = Instruments(find_layers(model), optimizer, self._trouble)
        self._watch = Watch([layer.name for layer in self._instruments.layers])
        config = {"budget": budget, "every": every, "readings": readings, "user": dict(note or {})}
        opened = store.resume if resume else store.create
        self._writer = opened(path, self._header(config))
        self._writer.on_trouble = log.warning
        self._number = self._writer.resumed_from or 0
        self._began = time.monotonic() - self._writer.elapsed
        self._spent = self._passed = self._proved_before = 0.0
        self._instruments.prove_first(FIRST_SECONDS)
        self._arm()

    @property
    def path(self) -> str:
        """The file being written."""
        return str(self._writer.path)

    @property
    def share(self) -> float:
        """Seconds spent measuring over seconds passed since the first step."""
        return self._spent / self._passed if self._passed else 0.0

    def step(self, loss: Tensor | float | None = None, lr: float | None = None) -> None:
        """One optimizer step is done.

        Args:
            loss: of this step; a tensor is not waited for.
            lr: the learning rate, where it is the same for all parameters and no optimizer was given.
        """
        began = time.perf_counter()
        self._number += 1
        if self._failures <= PATIENCE:
            try:
                self._step(loss, lr)
            except Exception as error:
                self._trouble(error)
        self._settle(began)

    def close(self) -> None:
        """Write what is still on its way and end the file; the hooks come off."""
        try:
            for pending in self._pending:
                if pending.event is not None:
                    pending.event.synchronize()
                pending.deliver()
            self._pending.clear()
            self._instruments.close()
            self._writer.append({"kind": "end", "step": self._number, "share": round(self.share, 5)})
        except Exception as error:
            self._trouble(error)
        self._writer.close()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, loss: Tensor | float | None, lr: float | None) -> None:
        if loss is not None:
            self._losses.append((self._number, loss.detach() if isinstance(loss, Tensor) else loss))
        if self._armed:
            self._armed = False
            self._measure(lr)
        self._collect()
        self._prove_within_budget()
        if self._readings and self._number % self._readings == 0:
            self._full_reading()
        if self._due():
            self._arm()

    def _measure(self, lr: float | None) -> None:
        """Read every layer, and send for the numbers."""
        began = time.perf_counter()
        event = _event(self._instruments.device)
        sheet = self._instruments.read()
        losses, self._losses = self._losses, []
        for at, value in losses:
            sheet.put(LOSS, str(at), value)
        step, when = self._number, time.monotonic() - self._began

        def then(floats: Floats, seconds: float) -> None:
            self._cost = max(self._cost, seconds)
            self._finish(step, when, lr, floats)

        self._pending.append(fetch(sheet, then, event))
        self._cost = time.perf_counter() - began

    def _collect(self) -> None:
        """Hand on what has come from the device."""
        while self._pending and self._pending[0].ready():
            self._pending.pop(0).deliver()

    def _finish(self, step: int, when: float, lr: float | None, floats: Floats) -> None:
        losses = [(int(at), value) for at, value in floats.pop(LOSS, {}).items()]
        rows = self._instruments.finish(floats, lr)
        if self._every is not None and step == self._number:
            self._instruments.narrow(rows)
        summary = totals(rows, self._instruments.lone())
        self._since_line += [value for _, value in losses]
        for alarm in self._watch.observe(step, losses, rows, summary):
            self._raise_alarm(alarm)
        if self._every is not None or step <= DENSE_LINES or step - self._last_line >= step / 500:
            self._write(step, when, lr, losses[-1][1] if losses else None, rows, summary)

    def _write(
        self,
        step: int,
        when: float,
        lr: float | None,
        loss: float | None,
        rows: list[Any],
        summary: Mapping[str, float | None],
    ) -> None:
        seen, self._since_line, self._last_line = self._since_line, [], step
        self._writer.append(
            {
                "kind": "step",
                "step": step,
                "time": round(when, 3),
                "loss": loss,
                "loss_mean": sum(seen) / len(seen) if seen else None,
                "loss_max": max(seen) if seen else None,
                "lr": lr if lr is not None else self._instruments.first_rate(),
                "totals": {**summary, "seconds": round(self._cost, 5), "share": round(self.share, 5)},
                "columns": {name: [_rounded(name, row.get(name)) for row in rows] for name in COLUMNS},
            }
        )

    def _due(self) -> bool:
        """Whether the coming step is to be read."""
        if self._every is not None:
            return (self._number + 1) % self._every == 0
        return not self._pending and self._reading.affords(self._cost)

    def _arm(self) -> None:
        self._instruments.arm()
        self._armed = True

    def _prove_within_budget(self) -> None:
        """One proof, for the widest enclosure that the account affords."""
        for index in self._instruments.wanting():
            if self._proving.affords(self._instruments.cost(index)):
                self._proving.spend(self._instruments.refresh(index))
                return

    def _settle(self, began: float) -> None:
        """Book the time of this call, and earn a share of what passed since the last one."""
        now = time.perf_counter()
        mine = now - began + self._instruments.hook_seconds
        self._spent += mine
        passed = 0.0 if self._last_call is None else now - self._last_call
        self._last_call = now
        self._passed += passed
        self._reading.earn(passed)
        self._proving.earn(passed)
        self._reading.spend(mine - (self._proving.spent - self._proved_before))
        self._proved_before = self._proving.spent

    def _full_reading(self) -> None:
        from normgauge.measure import gauge

        reading = gauge(self._model, self._batch, scope="point")
        self._writer.append({"kind": "reading", "step": self._number, "reading": reading.to_json()})

    def _raise_alarm(self, alarm: Alarm) -> None:
        record = {name: getattr(alarm, name) for name in ("step", "alarm", "layer", "sentence", "value", "threshold")}
        self._writer.append({"kind": "alarm", **record})
        log.warning("step %d: %s", alarm.step, alarm.sentence)
        if self._on_alarm is not None:
            self._on_alarm(alarm)

    def _trouble(self, error: Exception) -> None:
        """Something in the instrument itself failed: say it once, and stop after a few times."""
        self._failures += 1
        sentence = f"measuring failed at step {self._number} ({type(error).__name__}: {error}); training goes on."
        if self._failures > PATIENCE:
            sentence += " It failed too often and stops here."
        self._note(sentence, f"{type(error).__name__}: {error}")

    def _note(self, sentence: str, key: str) -> None:
        if key in self._said:
            return
        self._said.add(key)
        log.warning("%s", sentence)
        self._writer.append({"kind": "note", "step": self._number, "sentence": sentence})

    def _header(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kind": "header",
            "format": "normgauge-run",
            "schema": 1,
            "run": uuid4().hex,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"normgauge": __version__, "torch": torch.__version__, "python": platform.python_version()},
            "device": str(self._instruments.device),
            "world": 1,
            "model": {
                "name": type(self._model).__name__,
                "parameters": sum(p.numel() for p in self._model.parameters()),
            },
            "layers": [layer.described() for layer in self._instruments.layers],
            "columns": described(COLUMNS),
            "totals": described(TOTALS),
            "config": dict(config),
        }


def _check(model: nn.Module, budget: float, every: int | None, readings: int | None, batch: Any) -> None:
    if isinstance(model, nn.DataParallel):
        raise InputError(
            "nn.DataParallel copies the model to every device at each step, so hooks and gradients of the copies are "
            "lost; give the model inside it (model.module), or use DistributedDataParallel."
        )
    if not any(True for _ in model.parameters()):
        raise InputError(f"this {type(model).__name__} has no parameters: there is nothing to watch.")
    if not 0.0 < budget < 1.0:
        raise InputError(f"expected a budget between 0 and 1, such as 0.03 for three per cent; got {budget}.")
    if every is not None and every < 1:
        raise InputError(f"expected every >= 1 or None; got {every}.")
    if readings is not None and (readings < 1 or batch is None):
        raise InputError("full readings need a batch and a number of steps >= 1 between them: batch=..., readings=1000.")


def _event(device: torch.device) -> Any:
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _rounded(name: str, value: float | None) -> float | None:
    """Ends of an enclosure stay ends when they are written with six digits."""
    if value is None:
        return None
    if name == "norm_lower":
        return store.rounded_down(value)
    return store.rounded_up(value) if name == "norm_upper" else value
