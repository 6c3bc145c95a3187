"""What a sweep's config may say: every key with its kind, its default and what it means."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from normgauge.core.bound import Scope
from normgauge.errors import InputError

Check = Callable[[object], Any]  # the value as it is used; ValueError says what was expected
OPTIONS = "network.options."


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a config.

    Attributes:
        check: gives the value as it is used, or raises a ValueError that says what was expected.
        default: the value where the key is not given.
        what: its meaning, for people.
    """

    check: Check
    default: Any
    what: str


def text(value: object) -> str:
    """A string that is not empty.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, str) and value:
        return value
    raise ValueError("a text in quotes")


def flag(value: object) -> bool:
    """True or false.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def whole(least: int) -> Check:
    """A whole number, at least ``least``."""

    def check(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise ValueError(f"a whole number of at least {least}")

    return check


def number(*, zero: bool) -> Check:
    """A finite number above zero, or zero too."""

    def check(value: object) -> float:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if plain and math.isfinite(float(value)) and (float(value) >= 0 if zero else float(value) > 0):  # type: ignore[arg-type]
            return float(value)  # type: ignore[arg-type]
        raise ValueError("a number of at least 0" if zero else "a number above 0")

    return check


def one_of(*names: str) -> Check:
    """One of a few names."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        close = difflib.get_close_matches(str(value), names, n=1)
        raise ValueError(f"one of {', '.join(names)}" + (f" (nearest: {close[0]})" if close else ""))

    return check


def listed(check: Check, what: str) -> Check:
    """A list, not empty, of values that pass ``check``."""

    def check_all(value: object) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise ValueError(f"a list of {what}, not empty")
        return [check(item) for item in value]

    return check_all


def scope(value: object) -> str:
    """A scope, spelled in one way.

    Raises:
        ValueError: for anything else.
    """
    try:
        return str(Scope.parse(text(value)))
    except (InputError, ValueError):
        raise ValueError("point, global or ball:RADIUS") from None


def seed_list(value: object) -> list[int]:
    """A count of seeds, 0, 1, …, or the seeds themselves.

    Raises:
        ValueError: for anything else, and for a seed given twice.
    """
    if isinstance(value, list):
        seeds: list[int] = listed(whole(0), "whole numbers")(value)
        if len(set(seeds)) != len(seeds):
            raise ValueError("each seed once")
        return seeds
    try:
        return list(range(whole(1)(value)))
    except ValueError:
        raise ValueError("a count of at least 1 or a list of whole numbers") from None


KEYS: dict[str, Key] = {
    "name": Key(text, None, "of the sweep; the config file's own name where it is not given"),
    "seeds": Key(seed_list, [0], "how many seeds for each point (0, 1, …), or a list of them"),
    "monitor": Key(flag, True, "write a run file of each trial"),
    "data.set": Key(text, "digits", "a data set of the zoo"),
    "data.data_dir": Key(text, None, "folder with the data, from the config's folder; NORMGAUGE_DATA where not given"),
    "data.limit": Key(whole(2), None, "only so many training examples"),
    "data.test_limit": Key(whole(1), None, "only so many test examples"),
    "data.shape": Key(listed(whole(1), "whole numbers"), None, "each input in this shape, such as [1, 8, 8]"),
    "network.build": Key(text, None, "a network of the zoo, or file.py:function from the config's folder"),
    "training.epochs": Key(whole(0), 10, "passes through the training data"),
    "training.batch_size": Key(whole(1), 64, "examples a step"),
    "training.lr": Key(number(zero=False), 1e-3, "learning rate"),
    "training.optimizer": Key(one_of("adam", "adamw", "sgd"), "adam", "adam (L2 in the gradient), adamw or sgd"),
    "training.weight_decay": Key(number(zero=True), 0.0, "as the optimizer takes it"),
    "training.momentum": Key(number(zero=True), 0.9, "of sgd"),
    "training.device": Key(text, "cpu", "where to train: cpu, cuda, cuda:1, mps"),
    "measure.scopes": Key(listed(scope, "scopes"), ["point"], "where the trained network is gauged"),
    "measure.samples": Key(whole(1), 64, "test examples it is gauged at"),
    "measure.search": Key(flag, False, "look for steep slopes beyond the samples"),
    "measure.balance": Key(flag, True, "minimise the bound over the rescalings"),
    "random.count": Key(whole(1), None, "points to draw"),
    "random.seed": Key(whole(0), 0, "of the draws"),
    "run.out": Key(text, None, "folder for trials and results, from the working folder; sweeps/NAME where not given"),
    "run.workers": Key(whole(1), 1, "trials at a time"),
    "run.threads": Key(whole(1), None, "threads a trial; the cores divided by the workers where not given"),
    "run.retries": Key(whole(0), 1, "how often a failed trial is tried again"),
    "run.timeout": Key(number(zero=False), None, "seconds an attempt may take"),
    "run.keep": Key(flag, False, "keep the checkpoint of a finished trial"),
}
VARIED = ("data.", "network.", "training.")  # what grid and random may vary


def nearest(name: str, known: Iterable[str]) -> str:
    """Words that lead from a name that is not known to those that are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"nearest: {close[0]}" if close else f"known: {', '.join(names) or 'none'}"


def varied_check(key: str) -> Check | None:
    """What a value of a varied key must pass; None where the key cannot be varied."""
    if key.startswith(OPTIONS):
        return lambda value: value
    return KEYS[key].check if key in KEYS and key.startswith(VARIED) and key != "data.data_dir" else None
