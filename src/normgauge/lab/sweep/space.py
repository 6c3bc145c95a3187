"""The trials a config asks for, each with an id that depends on its settings alone."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from normgauge.lab.sweep.config import Config
from normgauge.lab.sweep.keys import KEYS, varied_check

PLACES = ("data.data_dir",)  # where the data lie is not what they are


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """One training.

    Attributes:
        id: a hash of the settings.
        point: the varied settings.
        seed: of the weights and of the order of the examples.
        settings: all settings by dotted key, the seed among them.
    """

    id: str
    point: Mapping[str, Any]
    seed: int
    settings: Mapping[str, Any]


def expand_trials(config: Config) -> list[SweepTrial]:
    """Every trial of a config: grid × draws × seeds, each settings once.

    Args:
        config: what is asked for.

    Returns:
        The trials; the same list for the same config, and its beginning for a larger count of draws or seeds.
    """
    trials: dict[str, SweepTrial] = {}
    for point in _points(config):
        for seed in config.seeds:
            settings = {**config.shared, **point, "seed": seed}
            key = identity(settings)
            trials.setdefault(key, SweepTrial(key, point, seed, settings))
    return list(trials.values())


def _points(config: Config) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*config.grid.values()):
        for index in range(config.count):
            drawn = {
                # a stream for each value: more draws or another key leave the others as they are
                key: _spelled(key, draw.value(random.Random(f"{config.draw_seed}/{index}/{key}")))
                for key, draw in config.draws.items()
            }
            yield dict(zip(config.grid, values, strict=True)) | drawn


def _spelled(key: str, value: Any) -> Any:
    """A value as its key takes it: a learning rate of 1 and one of 1.0 are the same setting."""
    check = varied_check(key)
    return value if check is None else check(value)


def identity(settings: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that depend on the settings alone.

    A setting at its default is left out, so that a key that a later version adds changes no id.
    """
    kept = {
        key: value
        for key, value in settings.items()
        if key not in PLACES and not (key in KEYS and value == KEYS[key].default)
    }
    written = json.dumps(kept, sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()[:12]
