"""The monitor: two lines in a training loop."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from normgauge.core import store
from normgauge.core.answers import answered
from normgauge.core.errors import InputError
from normgauge.monitor.capped import Budget, CapWatch
from normgauge.monitor.distributed import Team
from normgauge.monitor.facts import Facts, facts_of
from normgauge.monitor.instruments import Instruments
from normgauge.monitor.journal import Journal, Sink, header_of
from normgauge.monitor.layers import (
    SHOWN,
    Inventory,
    WatchedLayer,
    find_layers,
    unheard_sentence,
    unwatched_sentence,
)
from normgauge.monitor.listener import is_wrapped
from normgauge.monitor.norms import Part
from normgauge.monitor.optimizer import Optimizers, first_rate, largest_decay, optimizers_of
from normgauge.monitor.replay import compiled_part
from normgauge.monitor.rotation import PROOF_STEPS
from normgauge.monitor.schedule import DENSE_STEPS, GAP, LONGEST_SECONDS, LONGEST_STEPS, Level, Schedule
from normgauge.monitor.sheet import Pending, Sheet, fetch_numbers, is_ahead, recorded_event
from normgauge.monitor.signs.sign import Alarm, Place, Seen, broken_sample, data_size, finite_slope
from normgauge.monitor.signs.story import Story
from normgauge.monitor.watch import AlarmWatch
from normgauge.render.numbers import shortened_names

PATIENCE = 3  # failures of the instrument itself after which it stops measuring
FETCHED = 16  # losses that are fetched from a device together, between readings


class Monitor:
    """Watches a network while it trains, within a share of the training time that is set beforehand.

    >>> import torch, tempfile, normgauge
    >>> from normgauge.core import store
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

    Call ``step`` once after each optimizer step and before the gradients are cleared. It never raises, never waits for
    a device and keeps no graph. The file it writes is read by ``normgauge watch`` and ``normgauge report``.

    Args:
        model: the network; wrapped in DistributedDataParallel, FSDP2 or torch.compile is fine.
        path: a folder for the run, or a file name ending in ``.jsonl``.
        budget: share of the training time that measuring may take.
        every: measure everything at every so many steps instead, whatever it costs.
        optimizer: where to read the learning rate of each parameter, when ``step`` is not told; several in a list.
        resume: go on with the newest run of this path, if there is one; a number is the step the training goes on from,
            where that is not the last one written.
        batch: inputs for full readings, as ``normgauge.gauge`` takes them.
        readings: take a full reading every so many steps; it takes its own time, which ``normgauge.gauge`` shows.
        on_alarm: called with the ``Alarm`` of each incident.
        sinks: called with each record after it is written, the header first; what they raise is said once.
        distributed: whether all processes of torch.distributed train this model together, and one file is written; by
            default where it is wrapped in DistributedDataParallel or sharded by FSDP2.
        cap: the ``normgauge.cap`` of this training: lines then hold what it takes, and notes name the layers at it.
        note: anything to keep in the header, such as the settings of the run.

    Raises:
        InputError: if the model is no module (a stage of a pipeline), has no parameters, or is wrapped in
            nn.DataParallel; or if the path is none.
        StoreError: if the file cannot be written.
    """

    @answered({"path": 'say where the run is written, such as Monitor(model, "runs/a")'})
    def __init__(
        self,
        model: nn.Module,
        path: str | os.PathLike[str],
        budget: float = 0.03,
        *,
        every: int | None = None,
        optimizer: Optimizers = None,
        resume: bool | int = False,
        batch: Any = None,
        readings: int | None = None,
        on_alarm: Callable[[Alarm], None] | None = None,
        sinks: Sequence[Sink] = (),
        distributed: bool | None = None,
        cap: Budget | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        _check_path(path, budget)
        _check(model, budget, every, readings, batch)
        self._model, self._every, self._readings, self._batch = model, every, readings, batch
        self._budget, self._optimizers = budget, optimizers_of(optimizer)
        self._team = Team(model, distributed)
        if self._team.sharded and readings is not None:
            raise InputError("full readings need the model whole, and this one is sharded: leave out readings.")
        self._capped = CapWatch(cap)
        self._failures = 0
        self._shown, self._asked = 0, False
        self._pending: list[Pending] = []
        self._losses: dict[int, Tensor | float] = {}
        self._heard: Pending | None = None
        self._armed = False
        self._unreadable: dict[str, str] = {}
        self._layers = find_layers(model)
        self._inventory = Inventory(model)
        self._team.hold(self._layers)
        self._instruments = Instruments(
            model, self._team.measured(self._layers), self._optimizers, self._trouble, self._unread
        )
        self._watch = AlarmWatch(_places(self._instruments.layers))
        config = {"budget": budget, "every": every, "readings": readings, "user": dict(note or {})}
        header = header_of(model, self._layers, str(self._instruments.device), self._team.world, config)
        known = None if isinstance(resume, bool) else resume
        writer = self._team.opened(
            lambda: store.create(path, header) if resume is False else store.resume(path, header, step=known)
        )
        heard = sinks if self._team.rank == 0 else ()
        self._journal = Journal(writer, heard, on_alarm, sparse=every is None)
        self._number = (writer.resumed_from or 0) if known is None else known
        left_out = unwatched_sentence(model)
        if left_out:
            self._note(left_out, "unwatched")
        self._began = time.monotonic() - writer.elapsed
        self._first, self._facts = self._number, cast(Facts | None, None)
        self._schedule = Schedule(budget, every, self._number, on_host=self._instruments.device.type == "cpu")
        self._team.begin(self._number)
        self._guarded(self._instruments.warm_up)
        self._schedule.turning.turned(self._number, self._instruments.norms.gained)
        self._arm()
        self._team.release(self._layers)

    @property
    def path(self) -> str:
        """The file being written."""
        return self._journal.path

    @property
    def share(self) -> float:
        """Seconds measuring kept the training from going on, over seconds passed since the first step."""
        return self._schedule.share

    def step(self, loss: Tensor | float | None = None, lr: float | None = None) -> None:
        """Tell the monitor that one optimizer step is done; it measures where a reading is due.

        Args:
            loss: of this step; a tensor is not waited for.
            lr: the learning rate, where it is the same for all parameters and no optimizer was given.
        """
        self._number += 1
        if self._resting() and self._guarded(self._take, loss):
            return
        began, mark = self._schedule.clock(), recorded_event(self._instruments.device)
        if not (self._failures > PATIENCE if self._team.alone else self._team.stopped):
            self._step(loss, lr, mark)
        self._schedule.settle(began, self._instruments.hook_seconds, hidden=is_ahead(mark))

    def close(self) -> None:
        """Write what has not arrived yet, end the file and take the hooks off."""
        last = self._losses.get(self._number)
        self._guarded(self._collect, True)
        self._guarded(self._instruments.close)
        self._guarded(self._end, last)
        self._journal.close()

    def _end(self, last: Tensor | float | None) -> None:
        record: dict[str, Any] = {"kind": "end", "step": self._number, "share": round(self.share, 5)}
        if last is not None:
            record["loss"] = float(last) if math.isfinite(float(last)) else str(float(last))
        self._journal.append(record)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, loss: Tensor | float | None, lr: float | None, mark: Any) -> None:
        """Do the work of a step, each part guarded alone: whatever fails, all processes read at the same steps."""
        if self._number not in self._losses:
            self._guarded(self._take, loss)
        if self._armed or (self._team.alone and self._alarming()):
            heard, self._armed = self._armed, False
            self._measure(lr, heard, mark)
        self._guarded(self._look_after)
        due, suspicious = self._due(), self._suspicious()
        self._asked = suspicious
        if suspicious:
            self._schedule.want(due=due, everything=self._watch.story.everything)
            self._watch.story.everything = False
        if due or suspicious:
            self._armed = True
            self._guarded(self._arm)
        self._team.release(self._layers)

    def _guarded(self, part: Callable[..., Any], *args: Any) -> Any:
        """Do one part of the work; an error is reported and counted, and never reaches the training."""
        try:
            return part(*args)
        except Exception as error:
            self._trouble(error)
            return None

    def _resting(self) -> bool:
        """Whether this step needs nothing but its loss noted, as most do; so this must be quick."""
        if self._armed or self._pending or self._readings or not self._team.alone:
            return False
        return self._schedule.rests(self._number)

    def _take(self, loss: Tensor | float | None) -> bool:
        """Note the loss of this step and its settings; False if the step, or the next, is to be read for it."""
        passes = self._instruments.passes
        passes.reduce(loss)  # at every step: it is changed in the middle of a run, too
        if isinstance(loss, Tensor) and loss.numel() != 1:
            self._note(f"the loss has {loss.numel()} numbers: their mean is written.", "loss")
            loss = loss.detach().float().mean() if loss.numel() else None
        if loss is not None:
            try:
                self._losses[self._number] = _at_hand(loss)
            except (TypeError, ValueError) as error:
                self._note(f"the loss is no number ({error}): lines have none.", "loss")
        story = self._watch.story
        rate, decay = first_rate(self._optimizers), largest_decay(self._optimizers)
        story.note(self._number, rate, passes.training, reduction=passes.reduction, decay=decay)
        self._hear(story)
        return not self._alarming() and not story.wanted

    def _hear(self, story: Story) -> None:
        """Tell the story the loss of this step; those on a device are told when they have come."""
        loss = self._losses.get(self._number)
        if isinstance(loss, float):
            story.hear(self._number, loss)
        if not isinstance(loss, Tensor):
            return
        if self._heard is not None and self._heard.ready(False):
            self._heard.deliver()
            self._heard = None
        if self._heard is None and len(self._losses) % FETCHED == 0 and self._team.alone:
            sheet = Sheet()
            for at, value in list(self._losses.items())[-FETCHED:]:
                sheet.put(sheet.losses, at, value)

            def then(sheet: Sheet, reading: float, proving: float) -> None:
                for at, value in sheet.losses.items():
                    story.hear(at, value)

            self._heard = fetch_numbers(sheet, then)

    def _suspicious(self) -> bool:
        """Whether something about this step deserves a reading of the next, whatever the budget says."""
        wanted, self._watch.story.wanted = self._watch.story.wanted, False
        return wanted and self._team.alone

    def _look_after(self) -> None:
        self._collect()
        if self._schedule.late:
            self._note(
                f"measuring took {self.share:.1%} of the time since the first step, and the budget is "
                f"{self._budget:.1%}: the first {DENSE_STEPS} steps, and what looks odd, are read beyond it, and a "
                "short run spends more than it. Until that is made good, lines come further apart than "
                f"{LONGEST_STEPS} steps or {LONGEST_SECONDS:.0f} s (one costs {self._schedule.cost:.2g} s). A larger "
                "budget= gives more; the loss is watched at every step all the same.",
                "late",
            )
        if self._schedule.uncovered:
            self._note(
                f"proving the norm of every layer each {PROOF_STEPS} steps needs a budget of about "
                f"{self._schedule.uncovered:.2g}: proofs get older, and every line says how old they are.",
                "uncovered",
            )
        if self._readings and self._number % self._readings == 0 and self._team.rank == 0:
            self._full_reading()

    def _measure(self, lr: float | None, heard: bool, mark: Any) -> None:
        """Measure every layer, and start copying the numbers from the device; ``mark`` is its event of this step."""
        asked = self._asked or self._watch.story.urgent or self._schedule.level in (Level.ALERT, Level.RICH)
        self._watch.story.urgent = False
        self._schedule.reads(self._number)
        if not self._team.alone:
            self._guarded(self._collect, True)  # what was agreed at the reading before
            if self._team.stopped:
                return
        marks = [mark]
        fresh = self._guarded(self._inventory.fresh, self._layers) or []
        names = {layer.name for layer in self._layers}
        for layer in fresh:
            if layer.name in names:  # of one that is gone: each row of a file has a name of its own
                layer.path, layer.name = layer.name, f"{layer.name} (from step {self._number})"
        self._layers += fresh
        self._guarded(self._team.hold, self._layers, True)
        sheet = self._guarded(self._read, fresh, heard)
        losses, self._losses = self._losses, {}
        told = Sheet() if sheet is None else sheet
        for at, value in losses.items():
            told.put(told.losses, at, value)
        wish = self._team.wish(self._schedule.dearest, *self._schedule.wish(self._number))
        layers = self._instruments.layers
        before = self._failures
        self._guarded(self._team.exchange, told, layers, losses, self._number, wish, self._failures)
        marks.append(recorded_event(self._instruments.device))
        proved = [] if sheet is None else self._guarded(self._prove, told) or []
        complete, hidden = sheet is not None and self._failures == before, is_ahead(marks[0])
        self._guarded(self._send, told, marks, lr, complete, proved, asked, hidden)

    def _read(self, fresh: list[WatchedLayer], heard: bool) -> Sheet:
        gone = self._inventory.gone
        if gone:
            self._instruments.drop(gone)
            names = shortened_names([layer.name for layer in gone], SHOWN)
            self._note(f"{names}: no part of the model any more at step {self._number}; not measured since.", names)
        if fresh:
            self._add(fresh)
        exchanged = self._inventory.exchanged
        if exchanged:
            self._instruments.move(exchanged)
            names = shortened_names([layer.name for layer in exchanged], SHOWN)
            self._note(
                f"{names}: found to be another module at step {self._number}, of the same shape; its row goes on.",
                names,
            )
        whole = heard and self._schedule.level > Level.LIGHT  # a light one runs no samples of a compiled model again
        if whole and not self._team.sharded:
            self._instruments.listen_again()
        late = {*fresh, *exchanged}  # the step before they were found could not be heard
        silent = [layer for layer in self._instruments.unheard() if layer not in late] if whole else []
        if silent:
            compiled = compiled_part(self._model) is not None or is_wrapped(self._model)
            self._note(unheard_sentence(silent, compiled), "unheard")
        sheet = self._instruments.read(self._schedule.turning.turns)
        self._schedule.turning.turned(
            self._number, self._instruments.norms.gained
        )  # the same on all that share weights
        self._capped.put(sheet, self._instruments.layers)
        for sentence, key in self._capped.sentences():
            self._note(sentence, key)
        if self._instruments.left_out:
            self._note(self._instruments.left_out, "heads")
        for name, sentence in self._unreadable.items():
            self._note(sentence, f"unread {name}")
        return sheet

    def _prove(self, sheet: Sheet) -> list[Part]:
        """Begin the proofs that are due at this reading and that the budget affords, the oldest first."""
        if not self._team.can_prove:
            return []
        chosen: list[Part] = []
        for part in self._instruments.norms.provable(self._number):
            age = None if part.proved is None else self._number - part.proved
            if self._team.sharded:  # by counted steps alone, as all processes take part
                if (age is not None and age < PROOF_STEPS) or (chosen and self._every is None):
                    break
            elif not self._schedule.proves(part.cost, age):
                break
            self._instruments.prove(part, self._number, sheet)
            self._schedule.proving.spent += part.cost
            if age is None:  # the first proof is on credit: the next one is due before it could be saved for
                self._schedule.proving.earned += part.cost
            chosen.append(part)
        self._schedule.share_out(self._number, self._instruments.norms.proofs)
        return chosen

    def _send(
        self,
        sheet: Sheet,
        marks: list[Any],
        lr: float | None,
        complete: bool,
        proved: list[Part],
        asked: bool,
        hidden: bool,
    ) -> None:
        """Start copying the numbers from the device; the line is finished when they have arrived."""
        step, when, level = self._number, time.monotonic() - self._began, self._schedule.level

        def then(sheet: Sheet, reading: float, proving: float) -> None:
            self._schedule.book_device(reading, level)
            for part in proved:
                part.cost = self._schedule.book_proof(part.cost, proving / len(proved), hidden=hidden)
            for rank in self._team.settle(sheet, self._instruments.layers, PATIENCE):
                self._note(f"measuring failed on process {rank} by step {step}; its log says why.", f"rank {rank}")
            if complete and self._team.rank == 0:
                self._finish(step, when, lr, sheet, asked)

        self._pending.append(fetch_numbers(sheet, then, (marks[0], marks[1])))

    def _add(self, fresh: list[WatchedLayer]) -> None:
        """Watch parameters that were added since the last reading."""
        self._instruments.add(self._team.measured(fresh))
        self._facts = None
        self._watch = AlarmWatch(_places(self._instruments.layers), self._watch.story)
        described = [layer.described() for layer in fresh]
        self._journal.append({"kind": "layers", "step": self._number, "layers": described})

    def _alarming(self) -> bool:
        """Whether the loss of this step is known and tells of trouble: such a step is read at once."""
        return self._watch.story.urgent

    def _collect(self, wait: bool = False) -> None:
        """Process the numbers that have arrived from the device; with ``wait``, all of them."""
        while self._pending and self._pending[0].ready(wait):
            self._pending.pop(0).deliver()

    def _finish(self, step: int, when: float, lr: float | None, sheet: Sheet, asked: bool) -> None:
        losses = list(sheet.losses.items())
        rows = self._instruments.finish(sheet, lr, step)
        self._schedule.turning.moving = (
            self._team.alone and self._instruments.moving
        )  # several processes turn as often as each other
        summary = self._instruments.totals(rows)
        if not summary["gradient"] and not any(p.grad is not None for p in self._model.parameters()):
            self._note("there are no gradients: call step() after optimizer.step(), before zero_grad().", "gradients")
        rate = lr if lr is not None else first_rate(self._optimizers)
        whole = asked or not sheet.finite or step - self._first <= DENSE_STEPS or step - self._shown >= GAP
        if self._facts is None or asked or step - self._first <= DENSE_STEPS:
            told = self._told_optimizers
            self._facts = facts_of(self._model, self._instruments.layers, told, self._instruments.passes)
        pairs = {i: x.normalizer for i, x in enumerate(self._instruments.layers) if x.normalizer is not None}
        broken, given = broken_sample(sheet.network), data_size(sheet.network)
        order, scaled = self._instruments.order, self._instruments.scaled
        seen = Seen(
            step, losses, rows, summary, pairs, rate, given, sheet.half, self._facts,
            broken=broken, order=order, scaled=scaled, story=self._watch.story,
            slope=finite_slope(sheet.network),
        )  # fmt: skip
        for said in self._watch.observe(seen, whole=whole):
            self._journal.say(said)
        for sentence, key in self._watch.remarks(seen):
            self._note(sentence, key)
        self._shown = step if whole else self._shown
        record: dict[str, Any] = {
            "step": step,
            "time": round(when, 3),
            "lr": rate,
            "totals": {**summary, "seconds": round(self._schedule.cost, 5), "share": round(self.share, 5)},
        }
        heads = self._instruments.heads(sheet)
        if heads:
            record["heads"] = heads
        self._journal.line(record, losses, rows)

    @property
    def _told_optimizers(self) -> tuple[Any, ...]:
        """The optimizers whose parameters can be told apart; those of sharded weights cannot."""
        return () if self._team.sharded else self._optimizers

    def _due(self) -> bool:
        """Whether the next step is to be read."""
        if self._every is None and not self._team.alone:
            return self._team.due(self._number + 1)
        return self._schedule.due(self._number + 1) and (self._every is not None or not self._pending)

    def _arm(self) -> None:
        self._armed = True
        self._team.hold(self._layers)
        if not self._team.alone:
            self._schedule.level = self._schedule.by_count(self._number + 1)
        self._instruments.arm(self._schedule.level)

    def _full_reading(self) -> None:
        from normgauge.instrument.measure import gauge

        model = self._model
        if isinstance(model, DistributedDataParallel):  # its forward pass would wait for the others
            model = model.module
        reading = gauge(model, self._batch, scope="point", effort="quick")
        self._journal.append({"kind": "reading", "step": self._number, "reading": reading.to_json()})

    def _unread(self, layer: WatchedLayer, error: Exception) -> None:
        """Remember that a weight could not be read; all others are measured."""
        self._unreadable[layer.name] = f"{layer.name} cannot be read ({type(error).__name__}: {error}); the others are."

    def _trouble(self, error: Exception) -> None:
        """Report an error of the instrument itself once; after a few errors, measuring stops."""
        self._failures += 1
        sentence = f"measuring failed at step {self._number} ({type(error).__name__}: {error}); training goes on."
        if self._failures > PATIENCE:
            sentence += " It failed too often and stops here: there are no lines after this."
        self._note(sentence, "stopped" if self._failures > PATIENCE else f"{type(error).__name__}: {error}")

    def _note(self, sentence: str, key: str) -> None:
        self._journal.note(self._number, sentence, key)


def _check(model: nn.Module, budget: float, every: int | None, readings: int | None, batch: Any) -> None:
    """Refuse what cannot be watched.

    Raises:
        InputError: with what was expected, what came and what to do.
    """
    if not isinstance(model, nn.Module):
        raise InputError(
            f"expected an nn.Module; got {type(model).__name__}. Of a pipeline, a process has only some layers, and "
            "their numbers are not put together: give each process its own part (stage.submod) and a path of its own, "
            "with distributed=False."
        )
    if isinstance(model, nn.DataParallel):
        raise InputError(
            "nn.DataParallel copies the model to every device at each step, so hooks and gradients of the copies are "
            "lost; give the model inside it (model.module), or use DistributedDataParallel."
        )
    if not any(True for _ in model.parameters()):
        raise InputError(f"this {type(model).__name__} has no parameters: there is nothing to watch.")
    if not 0.0 < budget < 1.0:
        raise InputError(f"expected a budget between 0 and 1, such as 0.03 for three per cent; got {budget}.")
    if every is not None and (not isinstance(every, int) or every < 1):
        raise InputError(f"expected every to be a whole number of steps, at least 1, or None; got {every!r}.")
    if readings is not None and (readings < 1 or batch is None):
        raise InputError("full readings need a batch and a number of steps between them: batch=..., readings=1000.")


def _check_path(path: Any, budget: Any) -> None:
    """Refuse what was given in another order, as in Monitor(model, optimizer, "runs/a").

    Raises:
        InputError: then.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"expected a folder for the run after the model; got {type(path).__name__}. All else goes by name: "
            'Monitor(model, "runs/a", optimizer=optimizer).'
        )
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise InputError(f"expected a budget such as 0.03 for three per cent; got {budget!r}.")


def _places(layers: Sequence[WatchedLayer]) -> list[Place]:
    return [Place(layer.name, layer.role, layer.shape, layer.size()) for layer in layers]


def _at_hand(loss: Tensor | float) -> Tensor | float:
    """The loss as a float, or as a detached tensor where a float would wait for a device."""
    if isinstance(loss, Tensor) and loss.device.type != "cpu":
        return loss.detach().reshape(())
    return float(loss.item()) if isinstance(loss, Tensor) else float(loss)
