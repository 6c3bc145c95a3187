"""Where a command's output goes: a file, standard output, nowhere once a pipe's reader has left; and its progress."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from normgauge.core.errors import InputError
from normgauge.render.document import write_file
from normgauge.render.markup import clean

PATIENCE = 2.0  # seconds before a progress bar is drawn
STAGES = {"local": "a smaller bound", "lower": "slopes", "search": "slopes", "jacobians": "slopes"}  # in words
SILENCE = 5.0  # seconds of one stage before a line is written where no bar can be
Report = Callable[[str, float], None]


@contextlib.contextmanager
def standard_output() -> Iterator[TextIO]:
    """Standard output; a closed pipe ends the writing, not the command, so that its exit code still tells.

    Raises:
        InputError: when it cannot be written for another reason, such as a full disk.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # σ on a terminal that has none is no reason to fail
    try:
        yield sys.stdout
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is written at exit, to nowhere
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"cannot write to standard output: {error.strerror}") from None


def check_targets(*targets: str | None) -> None:
    """Refuse a file that cannot be written before any work is done for it.

    Raises:
        InputError: when it cannot be opened; it is left as it was, or not there.
    """
    for target in targets:
        if target is None or target == "-":
            continue
        try:
            _try_open(Path(target))
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}; give a file in a folder that exists") from None


def _try_open(path: Path) -> None:
    there = path.exists()
    if there and not (path.is_file() or path.is_dir()):
        return  # the reader of a pipe would take the first opening and closing for all there is
    with path.open("ab"):
        pass
    if not there:
        path.resolve().unlink()  # of a link that led nowhere, what it leads to


def complain(sentence: str) -> None:
    """Say what is wrong, on one line of standard error; nothing in it can steer the terminal."""
    print(f"normgauge: {clean(sentence)}", file=sys.stderr)


def tell_gate(what: str, passed: bool, sentence: str) -> None:
    """The verdict on one thing a gate judges, on one line of standard error, since standard output may be JSON."""
    print(f"normgauge: {what} {'passed' if passed else 'FAILED'}: {clean(sentence)}", file=sys.stderr)


def write_text(text: str, target: str) -> None:
    """Write to a file, or to standard output for ``-``.

    Raises:
        InputError: when the file cannot be written.
    """
    if target == "-":
        with standard_output() as stream:
            stream.write(text)
        return
    write_file(text, target)


def write_json(data: Any, target: str) -> None:
    """Write strict JSON to a file, or to standard output for ``-``."""
    text = json.dumps(data, allow_nan=False, indent=1, ensure_ascii=False) + "\n"
    write_text(clean(text), target)  # spelled as JSON spells it: the same data


def write_answer(target: str | None, data: Callable[[], Any], show: Callable[[TextIO], object]) -> None:
    """What ``data`` gives as JSON to its target, where there is one; the words on standard output, unless JSON took it.

    Args:
        target: the file of ``--json``, ``-`` for standard output, None where it is not asked for.
        data: what to write as JSON.
        show: writes the words to a stream.
    """
    if target is not None:
        write_json(data(), target)
    if target != "-":
        with standard_output() as stream:
            show(stream)


@contextlib.contextmanager
def progress_lines(silence: float = SILENCE) -> Iterator[Report]:
    """A callback ``(stage, fraction)`` that writes a line on standard error for a stage that takes its time."""
    waiting: list[threading.Timer] = []
    begun = time.monotonic()

    def tell(stage: str) -> None:
        complain(f"{STAGES.get(stage, stage)}: still at work after {time.monotonic() - begun:.0f} s")

    def report(stage: str, fraction: float) -> None:
        if waiting and waiting[-1].args == (stage,):
            return
        stop()
        waiting.append(threading.Timer(silence, tell, (stage,)))
        waiting[-1].daemon = True
        waiting[-1].start()

    def stop() -> None:
        while waiting:
            waiting.pop().cancel()

    try:
        yield report
    finally:
        stop()


def is_watched() -> bool:
    """Whether a bar can be drawn on standard error, and someone sees it."""
    return sys.stderr.isatty() and find_spec("rich") is not None


@contextlib.contextmanager
def progress_bar(clock: Callable[[], float] = time.monotonic) -> Iterator[Report | None]:
    """A callback ``(stage, fraction)`` for a bar on standard error, after two seconds; None where nobody watches."""
    if not is_watched():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=1.0)
    begun = clock()

    def report(stage: str, fraction: float) -> None:
        if not bar.live.is_started and clock() - begun > PATIENCE:
            bar.start()
        bar.update(task, description=stage, completed=fraction)

    try:
        yield report
    finally:
        bar.stop()
