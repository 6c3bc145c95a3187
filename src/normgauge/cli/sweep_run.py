"""What `sweep` does: check, run what is not done, tell."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from normgauge.cli.obstacles import check_allow
from normgauge.cli.output import (
    Report,
    check_targets,
    complain,
    is_watched,
    progress_bar,
    progress_lines,
    standard_output,
    write_json,
    write_text,
)
from normgauge.cli.sweep_verdict import Verdict, judge
from normgauge.core.errors import InputError, NormgaugeError
from normgauge.core.interrupted import Stopped
from normgauge.lab.sweep.attempt import Limits
from normgauge.lab.sweep.config import Config, read_config
from normgauge.lab.sweep.drive import Folder, Tally, drive
from normgauge.lab.sweep.engine import Engine, Local, threads_each
from normgauge.lab.sweep.files import LOCK, exclusive_lock, is_locked, measure_names, to_json, write_whole
from normgauge.lab.sweep.keys import nearest_name
from normgauge.lab.sweep.space import SweepTrial, expand_trials
from normgauge.render.console import draw_blocks
from normgauge.render.numbers import plural, shortened_names
from normgauge.render.sweep import (
    TrialOutcome,
    bound_sentences,
    csv_text,
    key_labels,
    measures,
    result_grid,
    spelled_setting,
    sweep_points,
    trial_failures,
    trials_not_gauged,
)
from normgauge.render.sweep_page import SweepView, sweep_page
from normgauge.render.table import Grid

LISTED = 40
NAMED = 3


def run_sweep(args: argparse.Namespace) -> int:
    """Run what the command was given.

    Returns:
        The exit code.

    Raises:
        InputError: for options that do not go together.
    """
    if args.address is not None and args.engine != "ray":
        raise InputError("--address is for --engine ray")
    check_allow(args)
    check_targets(args.json, args.html)
    config = read_config(args.config)
    _check_axes(args, config)
    trials = expand_trials(config)
    folder = _folder(args, config, trials)
    if args.dry_run:
        _list_trials(config, trials, folder)
        if args.fail_above is not None or args.fail_on_failed:
            complain("--dry-run judges nothing: it runs no trial, and neither --fail-above nor --fail-on-failed counts")
        return 0
    if not args.show:
        _run_trials(args, config, trials, folder)
    outcomes = [folder.outcome(trial) for trial in trials]
    verdict = judge(outcomes, config.shared["measure.scopes"], args.fail_on_failed, args.fail_above, args.allow or ())
    remarks = _remarks(folder, trials, outcomes, config.run["retries"])
    _tell(args, config, outcomes, remarks, verdict)
    for sentence in verdict.told:
        complain(sentence)  # on standard error, since standard output may be JSON
    return verdict.code


def _check_axes(args: argparse.Namespace, config: Config) -> None:
    wrong = [key for key in args.x or () if key not in config.varied]
    if wrong:
        raise InputError(f"--x {wrong[0]}: this sweep does not vary it; {nearest_name(wrong[0], config.varied)}")
    known = measure_names(config.shared["measure.scopes"])
    for option, name in (("--sort", args.sort), *(("--y", name) for name in args.y or ())):
        if name not in known:
            raise InputError(f"{option} {name}: no such measure; {nearest_name(name, known)}")
    if len(args.x or ()) > 2 or len(set(args.x or ())) != len(args.x or ()):
        raise InputError("--x: expected one setting, or two different ones for a heat map")


def _folder(args: argparse.Namespace, config: Config, trials: Sequence[SweepTrial]) -> Folder:
    """The folder of the sweep, once its trials are checked.

    Raises:
        InputError: for what cannot run.
    """
    from normgauge.lab.sweep.building import check_trials, code_file  # with torch: a mistake in the config needs none

    try:
        check_trials(trials, config.folder, here=args.engine == "local")
    except NormgaugeError as error:
        told = str(error).replace("Give folder=...", "Give data_dir in [data]")  # as the config spells it
        raise InputError(f"{config.path}: {told}") from None
    code = {str(trial.settings["network.build"]): code_file(trial.settings, config.folder) for trial in trials}
    return Folder(Path(args.out) if args.out else config.out, config.folder, code)


def _run_trials(args: argparse.Namespace, config: Config, trials: Sequence[SweepTrial], folder: Folder) -> None:
    retries, keep = config.run["retries"], config.run["keep"]

    def so_far() -> str:
        done = sum(folder.outcome(trial).status == "done" for trial in trials)
        return f"stopped, {done} of {plural(len(trials), 'trial')} done; the same command goes on"

    try:
        folder.out.mkdir(parents=True, exist_ok=True)
        busy = f"another sweep runs in {folder.out}; wait for its end, or give another folder with --out"
        with exclusive_lock(folder.out / LOCK, busy), _progress() as bar:

            def report(tally: Tally) -> None:
                if bar is not None:
                    bar(tally.words, tally.fraction)

            for trial in trials if args.fresh or args.fresh_all else ():
                if args.fresh_all or folder.outcome(trial).outdated:
                    folder.forget(trial)
            for trial in trials:
                folder.adopt(trial, keep)
            if any(folder.outcome(trial).status != "done" for trial in trials):
                with _stoppable(so_far), _engine(args, config, trials) as engine:
                    drive(trials, folder, engine, retries=retries, keep=keep, report=report)
            outcomes = [folder.outcome(trial) for trial in trials]
            write_whole(folder.out / "results.json", to_json(config, outcomes))
            write_text(csv_text(outcomes, config.varied), str(folder.out / "results.csv"))
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename or folder.out}: {error.strerror}; mend it and run again"
        ) from None


@contextlib.contextmanager
def _stoppable(words: Callable[[], str]) -> Iterator[None]:
    """Inside, SIGTERM stops as Ctrl-C does: what runs is ended in good order, and one line says how far it came.

    Raises:
        Stopped: with these words.
    """
    received = signal.SIGINT

    def stop(number: int, _: object) -> None:
        nonlocal received
        received = signal.Signals(number)
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()  # no other thread may say what a signal does
    before = signal.signal(signal.SIGTERM, stop) if main else None
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(words(), received) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _progress() -> contextlib.AbstractContextManager[Report | None]:
    return progress_bar() if is_watched() else progress_lines()


def _engine(args: argparse.Namespace, config: Config, trials: Sequence[SweepTrial]) -> Engine:
    workers = args.workers or config.run["workers"]
    limits = Limits(config.run["threads"] or threads_each(workers), config.run["timeout"])
    if args.engine == "local":
        return Local(workers, limits)
    from normgauge.lab.sweep.on_ray import OnRay

    gpu = any(str(trial.settings["training.device"]).startswith("cuda") for trial in trials)
    return OnRay(workers, limits, args.address, gpus=1.0 if gpu else 0.0)


def _remarks(folder: Folder, trials: Sequence[SweepTrial], outcomes: Sequence[TrialOutcome], retries: int) -> list[str]:
    statuses = [outcome.status for outcome in outcomes]
    lacking = sum(bool(outcome.not_gauged) for outcome in outcomes)
    gauged = f", {lacking} could not be gauged" if lacking else ""
    done = f"{statuses.count('done')} of {plural(len(trials), 'trial')} done"
    told = [f"{done}, {statuses.count('failed')} failed{gauged}."]
    begun, others = statuses.count("running"), folder.others(trials)
    outdated = [str(folder.place(t)) for t, o in zip(trials, outcomes, strict=True) if o.outdated]
    if "failed" in statuses:
        tries = plural(retries + 1, "attempt")
        told.append(
            f"In one run a trial is given up after {tries} (run.retries); the same command tries it again as often."
        )
    if begun:
        running = is_locked(folder.out / LOCK)
        told.append(f"{begun} running." if running else f"{begun} stopped: the same command goes on with them.")
    if others:
        told.append(f"{plural(others, 'trial')} of another config in {folder.out}: not shown here.")
    if outdated:
        told.append(
            f"{plural(len(outdated), 'finished trial')} used an earlier version of your code, or of files it reads: "
            f"{shortened_names(outdated, NAMED)}. Run them again with --fresh."
        )
    return told


def _tell(
    args: argparse.Namespace,
    config: Config,
    outcomes: Sequence[TrialOutcome],
    told: Sequence[str],
    verdict: Verdict,
) -> None:
    if args.html is not None:
        write_text(sweep_page(outcomes, _view(args, config, outcomes, (*told, *verdict.told))), args.html)
    if args.json is not None:
        write_json(to_json(config, outcomes), args.json)
    if args.json == "-" or args.html == "-":
        return
    table = [result_grid(sweep_points(outcomes), config.varied, args.sort, config.name)]
    with standard_output() as stream:
        shown = table if any(o.values for o in outcomes) else []
        written = [f"Page: {args.html}"] if args.html is not None else []
        told = [*told, *trial_failures(outcomes), *trials_not_gauged(outcomes)]
        draw_blocks([*shown, "", *(f"{line}." for line in bound_sentences(outcomes)), *told, *written], stream)


def _view(args: argparse.Namespace, config: Config, outcomes: Sequence[TrialOutcome], told: Sequence[str]) -> SweepView:
    known = measures(outcomes)
    scoped = [name for end in ("median", "upper") for name in known if name.endswith(f".log10_{end}")]
    shown = args.y or [name for name in known if name == "test_accuracy"] + scoped[:1]
    return SweepView(
        name=config.name,
        keys=config.varied,
        drawn=frozenset(config.draws),
        sort=args.sort,
        axes=tuple(args.x or ()),
        shown=tuple(shown),
        told=tuple(told),
    )


def _list_trials(config: Config, trials: Sequence[SweepTrial], folder: Folder) -> None:
    outcomes = [folder.outcome(trial) for trial in trials]
    rows = tuple(
        (o.id, *(spelled_setting(o.point[k]) for k in config.varied), str(o.seed), o.status) for o in outcomes[:LISTED]
    )
    more = f"and {len(outcomes) - LISTED} more" if len(outcomes) > LISTED else ""
    done = sum(outcome.status == "done" for outcome in outcomes)
    count = f"{plural(len(sweep_points(outcomes)), 'point')} × {plural(len(config.seeds), 'seed')}"
    grid = Grid(f"Sweep {config.name}", ("trial", *key_labels(config.varied), "seed", "status"), rows, footer=more)
    with standard_output() as stream:
        draw_blocks(
            [grid, f"{plural(len(trials), 'trial')} ({count}): {done} done, {len(trials) - done} to run."], stream
        )
