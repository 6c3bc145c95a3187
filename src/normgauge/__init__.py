"""normgauge measures how fast a network's output, loss and gradients can change.

>>> import normgauge
>>> normgauge.Scope.parse("ball:0.1")
Scope(kind='ball', radius=0.1)

The rooms, from the plain side up; each one's `__init__.py` says what is inside:

    core/          plain data, standard library only: intervals and rounding, scopes and evidence, readings, run files
    render/        data in, words and pictures out: console, HTML pages, figures, verdicts
    instrument/    gauge(): from a model and a batch to one reading; measure.py is the pipeline on one screen
    monitor/       Monitor: norms, σ, gradients and alarms while a network trains; watch, adapters for other tools
    lab/           networks, data sets, training, sweeps: what demo and experiments are made of
    loading/       models and batches named on the command line; nothing executed from a file
    advice/        advise(): what is wrong and what to change; what_if(): the network with another normalizer;
                   radius(): how far a sample may move before its prediction could change
    control/       penalty(), cap(), bounded(): training under a budget of capacity
    geometry/      symmetries(), canonical(), curvature(), and how normalized weights move
    certificates/  certify(): what can be promised about unseen data
    theory/        the claims of the papers, each with a check and a verdict
    cli/           one subcommand a file

docs/architecture.md has five walks through them: a reading, a training step, a certificate, a claim, a new rule.
Importing this package loads neither torch nor numpy; the names below load what they need on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from normgauge.core import moved
from normgauge.core.version import __version__

if TYPE_CHECKING:
    from normgauge.advice import advise
    from normgauge.advice.certified import radius
    from normgauge.advice.whatif import what_if
    from normgauge.certificates.table import certify
    from normgauge.control.bounded_norms import bounded, unbounded
    from normgauge.control.capacity_budget import cap
    from normgauge.control.capacity_penalty import penalty
    from normgauge.core.bound import Evidence, Scope
    from normgauge.core.errors import NormgaugeError
    from normgauge.core.reading import Reading
    from normgauge.geometry.hessian import curvature
    from normgauge.geometry.symmetry import canonical, symmetries
    from normgauge.instrument import testing
    from normgauge.instrument.measure import gauge, readings
    from normgauge.instrument.rules import REGISTRY
    from normgauge.loading import load_model
    from normgauge.monitor.monitor import Monitor
    from normgauge.render.page import report

_HOME = {
    "advise": "normgauge.advice",
    "bounded": "normgauge.control.bounded_norms",
    "canonical": "normgauge.geometry.symmetry",
    "cap": "normgauge.control.capacity_budget",
    "certify": "normgauge.certificates.table",
    "curvature": "normgauge.geometry.hessian",
    "gauge": "normgauge.instrument.measure",
    "load_model": "normgauge.loading",
    "Monitor": "normgauge.monitor.monitor",
    "penalty": "normgauge.control.capacity_penalty",
    "radius": "normgauge.advice.certified",
    "readings": "normgauge.instrument.measure",
    "Reading": "normgauge.core.reading",
    "Scope": "normgauge.core.bound",
    "Evidence": "normgauge.core.bound",
    "REGISTRY": "normgauge.instrument.rules",
    "report": "normgauge.render.page",
    "symmetries": "normgauge.geometry.symmetry",
    "testing": "normgauge.instrument.testing",
    "unbounded": "normgauge.control.bounded_norms",
    "what_if": "normgauge.advice.whatif",
    "NormgaugeError": "normgauge.core.errors",
}

_ASKED = {
    "lipschitz": "ng.gauge(model, batch).upper is a bound and .lower a slope that was found",
    "load": "ng.load_model(folder) gives the model of a Hugging Face folder; ng.Reading.load(path) reads what "
    "reading.save(path) wrote",
    "watch": "ng.Monitor(model, 'runs/a') writes a run down; `normgauge watch runs/a` in a terminal shows it",
    "ratios": "`normgauge ratios net.py:build --batch net.py:batch` in a terminal; in Python, ng.what_if(model, batch)",
    "check_rule": "ng.testing.check_rule attacks a rule",
    "diff": "`normgauge diff a.json b.json` in a terminal; reading.save(path) writes such files",
}  # names people try first, and where they are

__all__ = [
    "REGISTRY",
    "Evidence",
    "Monitor",
    "NormgaugeError",
    "Reading",
    "Scope",
    "__version__",
    "advise",
    "bounded",
    "canonical",
    "cap",
    "certify",
    "curvature",
    "gauge",
    "load_model",
    "penalty",
    "radius",
    "readings",
    "report",
    "symmetries",
    "testing",
    "unbounded",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        home = importlib.import_module(_HOME[name])
        value = globals()[name] = getattr(home, name, home)  # `testing` is a module
        return value
    if name in moved.MOVED:
        return importlib.import_module(f"normgauge.{name}")
    from normgauge.core.answers import unknown_name

    raise AttributeError(unknown_name("module 'normgauge'", name, __all__, _ASKED))


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


moved.install()
