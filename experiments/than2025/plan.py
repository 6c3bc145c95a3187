"""From config.toml to the list of runs."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from normgauge import NormgaugeError

CONFIG = Path(__file__).with_name("config.toml")


class PlanError(NormgaugeError):
    """The config or the choice of runs does not make a plan."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything one run depends on.

    Attributes:
        name: GROUP/VALUES, also the name of its result.
        order: its place in the plan; lower is more important.
        net: a network of ``normgauge.lab.zoo``.
        optimizer: "adam", "adamw" or "sgd".
        decay: weight decay, as that optimizer takes it.
        init: "he" or "default"; gain multiplies the former.
        normalizers: how many hidden layers of an MLP have one; -1 for all.
        readings: the epochs at which a full reading is taken.
        scopes: the scopes of those readings.
    """

    name: str
    order: int
    group: str
    net: str
    norm: str
    data: str
    optimizer: str
    lr: float
    decay: float
    momentum: float
    batch: int
    epochs: int
    seed: int
    init: str
    gain: float
    affine: str
    groups: int
    width: int
    depth: int
    normalizers: int
    readings: tuple[int, ...]
    scopes: tuple[str, ...]

    @property
    def slug(self) -> str:
        """The name as one path component."""
        return self.name.replace("/", "__")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """A spec stored by ``to_json``."""
        return cls(**{**data, "readings": tuple(data["readings"]), "scopes": tuple(data["scopes"])})


KNOWN = {field.name for field in fields(Spec)} - {"name", "order", "group"}


def load(path: Path = CONFIG, *, scale: str = "full") -> list[Spec]:
    """Read a config and list its runs in order of importance.

    Args:
        path: the TOML file.
        scale: "full", or a table ``[scale.NAME]`` that overrides settings.

    Returns:
        One spec a run.

    Raises:
        PlanError: for an unknown setting, network, optimizer or scale.
    """
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    scales = config.get("scale", {})
    if scale != "full" and scale not in scales:
        raise PlanError(f"no scale {scale!r} in {path.name}; there are full, {', '.join(scales)}.")
    override = scales.get(scale, {})
    specs: list[Spec] = []
    for group, table in config["group"].items():
        grid = table["grid"]
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            settings = _settings(config, {**table.get("set", {}), **chosen}, override, set(chosen))
            name = f"{group}/" + "-".join(_label(key, value) for key, value in chosen.items())
            specs.append(_spec(name, len(specs), group, settings))
    return specs


def select(specs: Iterable[Spec], wanted: Iterable[str], *, epochs: int | None = None) -> list[Spec]:
    """The runs whose group or name is wanted, in the order wanted, or all of them; at most so many epochs each.

    Raises:
        PlanError: when a wanted name is no group and no run.
    """
    specs, wanted = list(specs), list(wanted)
    strange = [w for w in wanted if not any(w in (s.group, s.name) for s in specs)]
    if strange:
        groups = ", ".join(dict.fromkeys(s.group for s in specs))
        raise PlanError(f"no group or run called {', '.join(strange)}; groups: {groups}.")
    chosen = [*dict.fromkeys(s for w in wanted for s in specs if w in (s.group, s.name))] if wanted else specs
    return chosen if epochs is None else [replace(s, epochs=min(s.epochs, epochs)) for s in chosen]


def _settings(
    config: Mapping[str, Any], own: Mapping[str, Any], override: Mapping[str, Any], swept: set[str]
) -> dict[str, Any]:
    """Defaults under the network's under the scale's under the optimizer's under the group's own.

    A scale replaces what a group merely sets, never what it sweeps.

    Raises:
        PlanError: for an unknown setting, network or optimizer.
    """
    net = own.get("net", "mlp")
    named = own.get("optimizer", config["defaults"]["optimizer"])
    if net not in config["net"] or named not in config["optimizer"]:
        raise PlanError(f"net={net!r} or optimizer={named!r} has no table in the config.")
    optimizer = dict(config["optimizer"][named])
    merged = {**config["defaults"], **config["net"][net], **optimizer, **own, "net": net}
    merged["optimizer"] = merged.pop("kind")
    merged |= {key: value for key, value in override.items() if key not in swept}
    strange = sorted(set(merged) - KNOWN)
    if strange:
        raise PlanError(f"unknown setting {', '.join(strange)}; known: {', '.join(sorted(KNOWN))}.")
    return merged


def _spec(name: str, order: int, group: str, settings: Mapping[str, Any]) -> Spec:
    readings = tuple(e for e in settings["readings"] if e <= settings["epochs"])
    rest = {**settings, "readings": readings, "scopes": tuple(settings["scopes"])}
    return Spec(name=name, order=order, group=group, **rest)


def _label(key: str, value: Any) -> str:
    """Names speak for themselves; numbers need their key."""
    return value if isinstance(value, str) else f"{key}{value:g}"
