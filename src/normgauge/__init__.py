"""normgauge measures how fast a network's output, loss and gradients can change.

>>> import normgauge
>>> normgauge.Scope.parse("ball:0.1")
Scope(kind='ball', radius=0.1)

The folders, from the plain side up:

    errors.py    NormgaugeError and its few children
    core/        plain data in the log domain: intervals, scopes, readings; standard library only
    checker.py   the arithmetic of a reading done again, trusting nothing; consistency.py what else it says
    reference/   readings of well-known networks, to compare with
    render/      readings in, text out: console table, HTML page, figures, verdict and explanation in words
    store/       run files: one line a reading, readable while they are written
    zoo/         networks and data sets of the demo and the papers
    training/    one small training loop
    spectral/    operator norms of tensors as proved enclosures
    trace/       run a model once and write down its steps
    rules/       what one step does to a slope; one family a file
    probe/       what is found rather than proved: Jacobian norms, secants, search
    compose.py   the rules' answers folded over the traced graph
    balance/     the balanced bound: minimise over the rescalings that leave the function alone
    session.py   a model traced and checked; slopes.py the largest slope found; stretch.py what each layer did there
    records.py   numbers of every layer; assembly.py one reading of all of them; pictures.py
    measure.py   gauge(): the pipeline from model and batch to Reading
    whatif/      what_if(): the same network with a normalizer taken out, exchanged or put in
    symmetry/    symmetries(), canonical(): what can be done to the weights without changing the function
    dynamics/    radial gradients, effective learning rates, equilibria; optimizers on the sphere
    hessian/     curvature(): eigenvalues, trace and spectrum of the loss, right on every normalizer
    advice/      advise(): what is wrong with a network, in sentences, and a way to follow them
    generalization/  certify(): what can be promised about unseen data; bounds (formulas), facts, rows
    monitor/     Monitor: proved norms, σ, gradients and alarms while a network trains
    loading/     models and batches named on the command line
    watching/    run files followed while they grow, and the live page
    adapters/    callbacks and sinks for other people's tools
    sweep/       many trainings from one file, here or on a cluster
    ledger/      the claims of the papers, each with a check and a verdict
    testing.py   check_rule(): the contract test for a rule of your own
    cli/         one subcommand a file

Importing this package loads neither torch nor numpy; the names below load what they need on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from normgauge.version import __version__

if TYPE_CHECKING:
    from normgauge.advice import advise
    from normgauge.core.bound import Evidence, Scope
    from normgauge.core.reading import Reading
    from normgauge.errors import NormgaugeError
    from normgauge.generalization.table import certify
    from normgauge.hessian import curvature
    from normgauge.measure import gauge, readings
    from normgauge.monitor import Monitor
    from normgauge.render.page import report
    from normgauge.rules import REGISTRY
    from normgauge.symmetry import canonical, symmetries
    from normgauge.whatif import what_if

_HOME = {
    "advise": "normgauge.advice",
    "canonical": "normgauge.symmetry",
    "certify": "normgauge.generalization.table",
    "curvature": "normgauge.hessian",
    "gauge": "normgauge.measure",
    "Monitor": "normgauge.monitor",
    "readings": "normgauge.measure",
    "Reading": "normgauge.core.reading",
    "Scope": "normgauge.core.bound",
    "Evidence": "normgauge.core.bound",
    "REGISTRY": "normgauge.rules",
    "report": "normgauge.render.page",
    "symmetries": "normgauge.symmetry",
    "what_if": "normgauge.whatif",
    "NormgaugeError": "normgauge.errors",
}

__all__ = [
    "REGISTRY",
    "Evidence",
    "Monitor",
    "NormgaugeError",
    "Reading",
    "Scope",
    "__version__",
    "advise",
    "canonical",
    "certify",
    "curvature",
    "gauge",
    "readings",
    "report",
    "symmetries",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
        return value
    raise AttributeError(f"module 'normgauge' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
