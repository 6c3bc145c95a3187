"""One network that is hard to trace: its readings against slopes of the model itself."""

from __future__ import annotations

import copy
import math
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import normgauge as ng
from tests.fuzz.oracle import Slope, Subject, slopes
from tests.fuzz.tracing import make_subject

SLACK = 1e-6  # relative: what the differences may be off by beyond their own rounding
FLOOR = 1e-7  # slopes below are rounding
CLAIMS = ("proved", "computed")


@dataclass
class Attempt:
    """What became of one network: an answer a scope, and what was wrong with it."""

    seed: int
    name: str
    answers: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0
    what: str = ""  # the network, in words, where something was broken


def attack(seed: int, name: str | None = None) -> Attempt:
    """Measure one awkward network in a scope of each kind and look for steeper slopes."""
    begun = time.process_time()
    subject = make_subject(seed, name)
    attempt = Attempt(seed, subject.name)
    radius = Random(seed).choice([0.03, 0.3, 3.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scope, reach in (("global", math.inf), (f"ball:{radius:g}", radius), ("point", 0.0)):
            judge(subject, scope, reach, attempt)
    attempt.seconds = time.process_time() - begun
    return attempt


def judge(subject: Subject, scope: str, radius: float, attempt: Attempt) -> None:
    """One reading, and every slope of the model in its scope."""
    subject.sown()
    model = copy.deepcopy(subject.model)
    try:
        with subject.world():
            reading = ng.gauge(model, subject.batch, scope=scope, mode=subject.mode, search=False)
    except ng.NormgaugeError:
        attempt.answers["refused"] += 1
        return
    except Exception as error:
        attempt.answers["crash"] += 1
        attempt.broken.append(f"{scope}: crash: {last_words(error)}")
        return
    depends = reading.path_dependent
    finite = reading.log_upper < math.inf
    kind = str(reading.evidence) if reading.evidence not in CLAIMS else "finite" if finite else "infinite"
    attempt.answers[f"{kind}, by path" if depends else kind] += 1
    if not finite or reading.evidence not in CLAIMS:
        return
    upper = math.exp(min(reading.log_upper, 700.0))
    worst = max((s for s in slopes(subject, radius) if s.same_path or not depends), key=by_size, default=None)
    if worst is not None and worst.size > upper * (1 + SLACK) + FLOOR:
        attempt.broken.append(f"{scope}: {reading.evidence} {upper:.9g}, found {worst.size:.9g} {worst.where}")


def last_words(error: Exception) -> str:
    """The error and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"


def by_size(slope: Slope) -> float:
    return slope.size
