"""Old paths of modules that have moved: for one release they still import, with a warning that names the new one."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "adapters": "monitor.adapters",
    "assembly": "instrument.assembly",
    "balance": "instrument.balance",
    "checker": "core.checker",
    "compose": "instrument.compose",
    "consistency": "core.consistency",
    "dynamics": "geometry.dynamics",
    "errors": "core.errors",
    "fingerprint": "instrument.fingerprint",
    "generalization": "certificates",
    "hessian": "geometry.hessian",
    "ledger": "theory",
    "loading.code": "core.user_code",
    "measure": "instrument.measure",
    "pictures": "instrument.pictures",
    "probe": "instrument.probe",
    "records": "instrument.records",
    "reference": "core.reference",
    "replay": "instrument.replay",
    "rules": "instrument.rules",
    "session": "instrument.session",
    "slopes": "instrument.slopes",
    "spectral": "instrument.spectral",
    "store": "core.store",
    "stretch": "instrument.stretch",
    "sweep": "lab.sweep",
    "symmetry": "geometry.symmetry",
    "testing": "instrument.testing",
    "trace": "instrument.trace",
    "training": "lab.training",
    "version": "core.version",
    "watching": "monitor.watching",
    "whatif": "advice.whatif",
    "zoo": "lab.zoo",
}


def new_path(name: str) -> str | None:
    """Where a module is now; None for one that did not move.

    >>> new_path("normgauge.rules.conv"), new_path("normgauge.core.bound")
    ('normgauge.instrument.rules.conv', None)
    """
    package, _, rest = name.partition(".")
    parts = rest.split(".")
    for count in (2, 1):
        moved = MOVED.get(".".join(parts[:count]))
        if package == "normgauge" and moved is not None and len(parts) >= count:
            return ".".join([package, moved, *parts[count:]])
    return None


class OldPaths(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module under its old path and gives the one under the new path, which is loaded once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for an old path."""
        return None if new_path(fullname) is None else importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, from its new path."""
        new = new_path(spec.name) or spec.name
        warnings.warn(f"{spec.name} is now {new}; the old path goes in the next release", FutureWarning, stacklevel=2)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It ran under its new path; the import system has just put the old one's spec on it."""
        module.__spec__ = module.__spec__.loader_state if module.__spec__ else None


def install() -> None:
    """Let old paths be found, once."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldPaths())
