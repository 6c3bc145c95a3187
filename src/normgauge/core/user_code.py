"""Objects named as Python code: `file.py:function` and `package.module:callable`. This runs that code."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from normgauge.core.answers import nearest
from normgauge.core.errors import LoadError, NormgaugeError


def find_object(spec: str, expected: str, ready: type | None = None) -> Callable[[], Any]:
    """What will give the object at ``place:name``; its module is imported now, a function is called later.

    Args:
        spec: what was given.
        expected: the error message for anything else.
        ready: instances of this type are the object itself, even if they can be called.

    Returns:
        A function without arguments.

    Raises:
        LoadError: when there is no such object, or it is a function that needs arguments.
    """
    found = locate_object(spec, expected)
    if not callable(found) or (ready is not None and isinstance(found, ready)):
        return lambda: found
    _check_arguments(found, spec)
    return lambda: _call(found, spec)


def locate_object(spec: str, expected: str) -> Any:
    """The object at ``place:name`` itself; its module is imported now.

    Args:
        spec: what was given.
        expected: the error message for what is no ``place:name``.

    Returns:
        The object.

    Raises:
        LoadError: when there is no such object.
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise LoadError(expected)
    module = _from_file(Path(place)) if place.endswith(".py") else _from_package(place)
    try:
        return getattr(module, name)
    except AttributeError:
        own = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise LoadError(f"{spec}: {place} has no {name!r}; its functions: {', '.join(own) or 'none'}") from None


def one_line(error: BaseException) -> str:
    """An error on one line, its type first."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]


def _check_arguments(function: Any, spec: str) -> None:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtins may have no signature; the call itself will tell
        parameters = []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in optional]
    if required:
        raise LoadError(f"{spec}: expected a function without arguments, got one that needs {', '.join(required)}")


def _call(function: Any, spec: str) -> Any:
    try:
        return function()
    except NormgaugeError:
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(f"{spec} raised {one_line(error)}") from error


def _from_file(path: Path) -> ModuleType:
    """Run a Python file once as a module, with its folder importable as it is for a script.

    Raises:
        LoadError: when it is missing or fails.
    """
    if not path.is_file():
        near = nearest(path.name, [other.name for other in path.parent.glob("*.py")])
        meant = f"; did you mean {path.with_name(near)}?" if near else ""
        raise LoadError(f"{path}: expected a Python file, got no such file{meant}")
    resolved = path.resolve()
    name = f"_normgauge_user_{resolved.stem}_{abs(hash(str(resolved))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    assert spec is not None and spec.loader is not None  # true of every .py file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise LoadError(f"{path}: importing it raised {one_line(error)}") from error
    return module


def _from_package(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        message = f"{name}: importing it raised {one_line(error)}; is it a module, or was file.py meant?"
        raise LoadError(message) from error
