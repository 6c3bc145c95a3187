"""What is said to a call that cannot be: the name meant, or what to do instead."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
TOO_MANY = "*"  # the key of what to say to more positional arguments than there are
MEASURE = {
    TOO_MANY: 'after the scope, options go by name, such as effort="long"',
    "eps": 'for all inputs within 0.1 of a sample: scope="ball:0.1"',
    "norm": 'lengths are Euclidean on both sides; inputs that move by at most e in each of n entries lie in '
    'scope="ball:R" with R = e*sqrt(n)',
    "radius": 'for all inputs within 0.1 of a sample: scope="ball:0.1"; ng.radius says how far a prediction holds',
    "device": "the model is measured where it lives; move it and the batch with .to(device)",
}  # fmt: skip


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like the one given, empty where none is.

    >>> nearest("sope", ["scope", "mode"]), nearest("colour", ["scope", "mode"])
    ('scope', '')
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), "")


def unknown_name(owner: str, name: str, known: Iterable[str], answers: Mapping[str, str]) -> str:
    """Say that there is no such name, and what to do: the answer prepared for it, the nearest name, or all of them.

    >>> unknown_name("box", "siez", ["size", "colour"], {})
    "box has no 'siez'; did you mean size?"
    """
    names = list(known)
    near = nearest(name, names)
    said = answers.get(name) or (f"did you mean {near}?" if near else f"it has {', '.join(names)}")
    return f"{owner} has no {name!r}; {said}"


def answered(answers: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function answer calls that do not fit it, with what to do for each mistake that is known.

    Args:
        answers: by the name of an option that there is not, or of an argument that was left out; `TOO_MANY` for more
            positional arguments than there are.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        name = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(misfit(name, signature, kwargs, str(error), answers)) from None
            return function(*args, **kwargs)

        return checked

    return decorate


def misfit(
    name: str, signature: inspect.Signature, given: Mapping[str, object], error: str, answers: Mapping[str, str]
) -> str:
    """Say what is wrong with a call that a signature refused, and what to do."""
    unknown = next((key for key in given if key not in signature.parameters), None)
    if unknown is not None:
        options = [key for key in signature.parameters if key != "self"]
        return unknown_name(f"{name}()", unknown, options, answers)
    key = TOO_MANY if error.startswith("too many") else next((k for k in answers if repr(k) in error), "")
    return f"{name}(): {error}" + (f"; {answers[key]}" if key in answers else "")
