"""What lies in the folders of a sweep and its trials, and how it is written: whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from normgauge.core.bound import Evidence, Known
from normgauge.core.errors import InputError
from normgauge.core.spelled import unspell_number
from normgauge.core.stored import written_whole
from normgauge.core.version import __version__
from normgauge.lab.sweep.config import Config
from normgauge.render.sweep import SweepPoint, TrialOutcome, measures, sweep_points

try:
    import fcntl
except ImportError:  # no such locks on Windows; there, two sweeps in one folder are the user's care
    fcntl = None  # type: ignore[assignment]

Made = TypeVar("Made")
SCHEMA = 1
FORMAT = "normgauge-sweep"
LARGE = 1 << 20  # bytes
SCORES = ("train_accuracy", "test_accuracy", "gap", "train_loss", "test_loss", "loss_gap")
PRODUCTS = ("log10_P_w", *(f"log10_prod_inv_sigma_{end}" for end in ("min", "rms", "max")))
RECORD, RESULT, IMPORTS, CHECKPOINT, RUN, LOG, LOCK = (
    "trial.json",
    "result.json",
    "imports.json",
    "checkpoint.pt",
    "run.jsonl",
    "log.txt",
    "lock",
)


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a trial from outside.

    Attributes:
        id: of the trial.
        settings: all of them.
        folder: where relative paths of the settings begin.
        status: ``new``, ``running``, ``done`` or ``failed``; what is ``running`` while no sweep runs was killed.
        attempts: begun so far.
        seconds: of the attempts that ended; None where nobody took the time of one.
        error: last lines of the last failed attempt.
        code: a digest of the user's file that builds the network, "" where there is none.
    """

    id: str
    settings: Mapping[str, Any]
    folder: str
    status: str = "new"
    attempts: int = 0
    seconds: float | None = 0.0
    error: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished trial found.

    Attributes:
        values: numbers by name; None for what could not be measured.
        notes: sentences about them.
        losses: training loss of each epoch.
        known: by scope, how the upper bound is known; empty in results of older versions.
        seconds: that the attempt took, by its own clock; None where it was not written down.
    """

    values: Mapping[str, float | None]
    notes: tuple[str, ...] = ()
    losses: tuple[float, ...] = field(default=())
    seconds: float | None = None
    known: Mapping[str, Known] = field(default_factory=dict)


def write_record(place: Path, record: Record) -> None:
    """Write trial.json."""
    write_whole(place / RECORD, {"schema": SCHEMA, **asdict(record)})


def read_record(place: Path) -> Record | None:
    """The record of a folder; None where it is absent or damaged."""
    return _read(place / RECORD, lambda data: Record(**data))


def write_result(place: Path, result: Result) -> None:
    """Write result.json: with it, the trial is done."""
    values = {name: json_number(value) for name, value in result.values.items()}
    losses = [json_number(loss) for loss in result.losses]
    told = {"values": values, "notes": list(result.notes), "losses": losses, "seconds": result.seconds}
    write_whole(place / RESULT, {"schema": SCHEMA, **told, "known": _known_json(result.known)})


def read_result(place: Path) -> Result | None:
    """The result of a folder; None where it is absent or damaged."""

    def result(data: dict[str, Any]) -> Result:
        values = {name: unspell_number(value) for name, value in data["values"].items()}
        seconds = data.get("seconds")
        known = {scope: _known(entry) for scope, entry in data.get("known", {}).items()}
        losses = tuple(map(float, data["losses"]))
        return Result(values, tuple(data["notes"]), losses, None if seconds is None else float(seconds), known)

    return _read(place / RESULT, result)


def _known_json(known: Mapping[str, Known]) -> dict[str, dict[str, Any]]:
    return {scope: {**asdict(entry), "evidence": str(entry.evidence)} for scope, entry in known.items()}


def _known(data: Mapping[str, Any]) -> Known:
    return Known(Evidence(data["evidence"]), bool(data["path_dependent"]), float(data["failure_probability"]))


def write_imports(place: Path, digests: Mapping[str, str]) -> None:
    """Write imports.json: the digest of each file of the user's that the network was built from."""
    write_whole(place / IMPORTS, {"schema": SCHEMA, "files": dict(digests)}, ascii_only=True)  # names of any bytes


def read_imports(place: Path) -> dict[str, str]:
    """The digests of a folder, by path; none where they are absent or damaged."""
    return _read(place / IMPORTS, lambda data: {str(path): str(digest) for path, digest in data["files"].items()}) or {}


def file_digest(path: Path) -> str:
    """Twelve hexadecimal digits that depend on the bytes of a file; "" where there is none."""
    try:
        found = path.stat()
        if found.st_size < LARGE:
            return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        return _large_digest(path, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    except (OSError, ValueError):  # a name that no file can have
        return ""


@lru_cache(maxsize=256)
def _large_digest(path: Path, _: tuple[int, ...]) -> str:
    """Of weights, which many trials read: once, as long as the file has not been written again."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:12]


def json_number(value: float | None) -> float | str | None:
    """A number as strict JSON allows it: "inf", "-inf" and "nan" are strings."""
    return value if value is None or math.isfinite(value) else str(float(value))


def write_whole(path: Path, data: Mapping[str, Any], *, ascii_only: bool = False) -> None:
    """Write JSON so that a kill leaves either the old file or the new one."""
    with written_whole(path) as partial:
        partial.write_text(
            json.dumps(data, allow_nan=False, indent=1, ensure_ascii=ascii_only) + "\n", encoding="utf-8"
        )


def _read(path: Path, made: Callable[[dict[str, Any]], Made]) -> Made | None:
    """``made`` of a file's fields; None where the file is absent, damaged or of another schema."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return made(data) if isinstance(data, dict) and data.pop("schema", None) == SCHEMA else None
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        return None


def measure_names(scopes: Sequence[str]) -> list[str]:
    """What a trial may measure when it is gauged in these scopes."""
    bounds = [f"{scope}.log10_{end}" for scope in scopes for end in ("upper", "balanced", "folded", "lower")]
    return [*SCORES, *bounds, *["point.log10_median"] * ("point" in scopes), *PRODUCTS, "alarms"]


def to_json(config: Config, outcomes: Sequence[TrialOutcome]) -> dict[str, Any]:
    """Everything a sweep found, in the form that results.json and ``--json`` hold."""
    names = measures(outcomes)
    return {
        "schema": SCHEMA,
        "format": FORMAT,
        "normgauge": __version__,
        "name": config.name,
        "config": str(config.path),
        "shared": dict(config.shared),
        "varied": list(config.varied),
        "points": [_point(point, names) for point in sweep_points(outcomes)],
        "trials": [_trial(outcome) for outcome in outcomes],
    }


def _point(point: SweepPoint, names: Sequence[str]) -> dict[str, Any]:
    return {
        "settings": dict(point.settings),
        "seeds": len(point.outcomes),
        "done": point.done,
        "failed": sum(outcome.status == "failed" for outcome in point.outcomes),
        "mean": {name: json_number(point.mean(name)) for name in names},
        "std": {name: json_number(point.std(name)) for name in names},
    }


def _trial(outcome: TrialOutcome) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "settings": dict(outcome.point),
        "seed": outcome.seed,
        "status": outcome.status,
        "outdated": outcome.outdated,
        "attempts": outcome.attempts,
        "seconds": outcome.seconds,
        "error": outcome.error,
        "notes": list(outcome.notes),
        "known": _known_json(outcome.known),
        "values": {name: json_number(value) for name, value in outcome.values.items()},
    }


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file; False where that cannot be told."""
    if not path.exists():
        return False
    try:
        with exclusive_lock(path, "held"):
            return False
    except (InputError, OSError):
        return True


@contextlib.contextmanager
def exclusive_lock(path: Path, refusal: str | None = None) -> Iterator[None]:
    """Hold a lock on a file; the system gives it back when the process ends, however it ends.

    Args:
        path: the file, made where it does not exist.
        refusal: the error when another process holds it; None to wait for it instead.

    Yields:
        Nothing.

    Raises:
        InputError: with the refusal.
    """
    with path.open("ab") as stream:
        if fcntl is not None:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | (0 if refusal is None else fcntl.LOCK_NB))
            except BlockingIOError:
                raise InputError(str(refusal)) from None
        yield
