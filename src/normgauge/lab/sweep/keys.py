"""What a sweep's config may say: every key with its kind, its default and what it means; how a value is drawn."""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from normgauge.core.bound import Scope
from normgauge.core.errors import InputError

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


def accepting(expected: str, passes: Callable[[Any], bool], used: Callable[[Any], Any] = lambda value: value) -> Check:
    """A check that returns ``used(value)`` where ``passes(value)``, and else raises a ValueError with ``expected``."""

    def check(value: object) -> Any:
        if passes(value):
            return used(value)
        raise ValueError(expected)

    return check


def is_number(value: object, kind: Any = (int, float)) -> bool:
    """Whether a value is a finite number; True and False are not."""
    return isinstance(value, kind) and not isinstance(value, bool) and abs(value) < math.inf


def whole_at_least(least: int) -> Check:
    """A check for whole numbers of at least ``least``."""
    return accepting(f"a whole number of at least {least}", lambda value: is_number(value, int) and value >= least)


text = accepting("a text in quotes", lambda value: isinstance(value, str) and value != "")
flag = accepting("true or false", lambda value: isinstance(value, bool))
not_negative = accepting("a number of at least 0", lambda value: is_number(value) and value >= 0, float)
above_zero = accepting("a number above 0", lambda value: is_number(value) and value > 0, float)


def one_of(*names: str) -> Check:
    """A check for one of these names."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        close = difflib.get_close_matches(str(value), names, n=1)
        raise ValueError(f"one of {', '.join(names)}" + (f" (nearest: {close[0]})" if close else ""))

    return check


def list_of(check: Check, what: str) -> Check:
    """A check for a list, not empty, whose values all pass ``check``."""

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
        seeds: list[int] = list_of(whole_at_least(0), "whole numbers")(value)
        if len(set(seeds)) != len(seeds):
            raise ValueError("each seed once")
        return seeds
    try:
        return list(range(whole_at_least(1)(value)))
    except ValueError:
        raise ValueError("a count of at least 1 or a list of whole numbers") from None


KEYS: dict[str, Key] = {
    "name": Key(text, None, "of the sweep; the config file's own name where it is not given"),
    "seeds": Key(seed_list, [0], "how many seeds for each point (0, 1, …), or a list of them"),
    "monitor": Key(flag, True, "write a run file of each trial"),
    "data.set": Key(text, "digits", "a data set of the zoo"),
    "data.data_dir": Key(text, None, "folder with the data, from the config's folder; NORMGAUGE_DATA where not given"),
    "data.limit": Key(whole_at_least(2), None, "only so many training examples"),
    "data.test_limit": Key(whole_at_least(1), None, "only so many test examples"),
    "data.shape": Key(list_of(whole_at_least(1), "whole numbers"), None, "each input in this shape, such as [1, 8, 8]"),
    "network.build": Key(text, None, "a network of the zoo, or file.py:function from the config's folder"),
    "training.epochs": Key(whole_at_least(0), 10, "passes through the training data"),
    "training.batch_size": Key(whole_at_least(1), 64, "examples a step"),
    "training.lr": Key(above_zero, 1e-3, "learning rate"),
    "training.optimizer": Key(one_of("adam", "adamw", "sgd"), "adam", "adam (L2 in the gradient), adamw or sgd"),
    "training.weight_decay": Key(not_negative, 0.0, "as the optimizer takes it"),
    "training.momentum": Key(not_negative, 0.9, "of sgd"),
    "training.device": Key(text, "cpu", "where to train: cpu, cuda, cuda:1, mps"),
    "measure.scopes": Key(list_of(scope, "scopes"), ["point"], "where the trained network is gauged"),
    "measure.samples": Key(whole_at_least(1), 64, "test examples it is gauged at"),
    "measure.search": Key(flag, False, "look for steep slopes beyond the samples"),
    "measure.balance": Key(flag, True, "minimise the bound over the rescalings"),
    "random.count": Key(whole_at_least(1), None, "points to draw"),
    "random.seed": Key(whole_at_least(0), 0, "of the draws"),
    "run.out": Key(text, None, "folder for trials and results, from the working folder; sweeps/NAME where not given"),
    "run.workers": Key(whole_at_least(1), 1, "trials at a time"),
    "run.threads": Key(whole_at_least(1), None, "threads a trial; the cores divided by the workers where not given"),
    "run.retries": Key(whole_at_least(0), 1, "how often a failed trial is tried again"),
    "run.timeout": Key(above_zero, None, "seconds an attempt may take"),
    "run.keep": Key(flag, False, "keep the checkpoint of a finished trial"),
}
VARIED = ("data.", "network.", "training.")  # what grid and random may vary


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or all known ones where none is near, as the end of an error sentence."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"nearest: {close[0]}" if close else f"known: {', '.join(names) or 'none'}"


def varied_check(key: str) -> Check | None:
    """The check for values of a key that is varied; None where the key cannot be varied."""
    if key.startswith(OPTIONS):
        return lambda value: value
    return KEYS[key].check if key in KEYS and key.startswith(VARIED) and key != "data.data_dir" else None


DRAWS = ("log_uniform", "uniform", "int", "choice")


@dataclass(frozen=True, slots=True)
class ValueDraw:
    """One way to draw a value.

    Attributes:
        kind: one of `DRAWS`.
        ends: the two ends of a range (both can come for ``int``), or the values to choose from.
    """

    kind: str
    ends: tuple[Any, ...]

    @classmethod
    def of(cls, kind: str, given: object) -> ValueDraw:
        """A draw from what the config says.

        Raises:
            ValueError: says what was expected.
        """
        if kind == "choice":
            if isinstance(given, list) and given:
                return cls(kind, tuple(given))
            raise ValueError("a list of values, not empty")
        what = "two whole numbers, the smaller first" if kind == "int" else "two numbers, the smaller first"
        numbers = int if kind == "int" else (int, float)
        if not isinstance(given, list) or len(given) != 2 or not all(is_number(end, numbers) for end in given):
            raise ValueError(what)
        if given[0] >= given[1] or (kind == "log_uniform" and given[0] <= 0):
            raise ValueError(what + (", both above 0" if kind == "log_uniform" else ""))
        return cls(kind, tuple(given) if kind == "int" else tuple(map(float, given)))

    def value(self, stream: random.Random) -> Any:
        """Draw one value; floats get six digits, so that tables stay readable."""
        if self.kind == "choice":
            return self.ends[stream.randrange(len(self.ends))]
        low, high = self.ends
        if self.kind == "int":
            return stream.randint(low, high)
        if self.kind == "uniform":
            return float(f"{stream.uniform(low, high):.6g}")
        return float(f"{math.exp(stream.uniform(math.log(low), math.log(high))):.6g}")
