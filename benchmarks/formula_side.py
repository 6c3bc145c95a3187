"""Which expressions of a check are its formula, and which its instance: a slice back from what is compared.

The formula side is what leads to ``predicted=``; the instance side is what leads to ``measured``, or comes from a draw.
A name that leads to both belongs to the instance, and so does a function that both sides call.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

COMPARED, REFUTED, OTHER = (
    ("equals", "below"),
    ("refutes", "exceeds"),
    ("moves", "shown"),
)
OF_THE_LEDGER = "normgauge.theory"


@dataclass(frozen=True)
class Unit:
    """A function whose body is looked at."""

    function: Callable[..., Any]
    tree: ast.FunctionDef
    module: ModuleType


@dataclass(frozen=True)
class Site:
    """An expression on the formula side.

    Attributes:
        unit: the function it stands in.
        node: the expression, a node of the unit's tree.
        finding: what the comparison it leads to is called; of a refutation or a fact, ``node`` is the whole call.
        final: it is what is compared, not what leads to it.
    """

    unit: Unit
    node: ast.AST
    finding: str
    final: bool = False


@cache
def parsed(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def unit_of(function: Callable[..., Any]) -> Unit | None:
    """The function with its tree; None for what has no source of its own, such as a partial."""
    module, code = inspect.getmodule(function), getattr(function, "__code__", None)
    if module is None or code is None:
        return None
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno and node.name == function.__name__:
                return Unit(function, node, module)
    return None


def calls(tree: ast.AST, names: Iterable[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    return named.get(name) or (call.args[position] if len(call.args) > position else None)


def loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


@dataclass(frozen=True)
class Definition:
    """Names that are bound or changed, and the expression they get their value from.

    Attributes:
        names: all of one assignment.
        value: the expression.
        straight: it is done once, whatever happens, and leaves nothing of an earlier value.
    """

    names: frozenset[str]
    value: ast.AST
    straight: bool = False


def definitions(tree: ast.FunctionDef) -> list[Definition]:
    """Every definition in a function."""
    found: list[Definition] = []

    def put(names: set[str], value: ast.AST, straight: bool = False) -> None:
        found.append(Definition(frozenset(names), value, straight and not names & loaded(value)))

    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                plain = all(isinstance(target, ast.Name | ast.Tuple) for target in targets)
                put(set().union(*map(_bound, targets)), value, plain and node in tree.body)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                put(_bound(target), value)
            case ast.NamedExpr(target=target, value=value):
                put(_bound(target), value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                put(_bound(target), value)
            case ast.FunctionDef(name=name) if node is not tree:
                put({name}, node)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=args)):  # items.append(x)
                for value in args:
                    put({name}, value)
    return found


def live(bound: list[Definition], line: int) -> list[Definition]:
    """Those that can reach a line: not overwritten on the way there."""

    def gone(one: Definition) -> bool:
        first = one.value.lineno  # type: ignore[attr-defined]
        return one.straight and any(
            other.straight and one.names <= other.names and first < other.value.lineno < line  # type: ignore[attr-defined]
            for other in bound
        )

    return [one for one in bound if not gone(one)]


def _bound(target: ast.AST) -> set[str]:
    """The names at the root of a target; of ``x[i] = ...`` that is x, not i."""
    match target:
        case ast.Subscript(value=value) | ast.Attribute(value=value) | ast.Starred(value=value):
            return _bound(value)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return set().union(*map(_bound, items))
    return loaded(target)


def reach(names: set[str], bound: list[Definition]) -> set[str]:
    """The names that lead to these."""
    seen: set[str] = set()
    while names - seen:
        new = names - seen
        seen |= new
        names = seen.union(*(loaded(one.value) for one in bound if one.names & new))
    return seen


def functions(names: Iterable[str], unit: Unit) -> dict[str, Unit]:
    """The functions of the ledger behind global names, and those they call."""
    found: dict[str, Unit] = {}
    waiting = [(name, unit.module) for name in names]
    while waiting:
        name, module = waiting.pop()
        value = getattr(module, name, None)
        if name in found or not inspect.isfunction(value):
            continue
        if value.__module__ != unit.module.__name__ and not value.__module__.startswith(OF_THE_LEDGER):
            continue
        if (helper := unit_of(value)) is not None and helper.module.__name__ != f"{OF_THE_LEDGER}.claim":
            found[name] = helper
            waiting += [(inner, helper.module) for inner in loaded(helper.tree)]
    return found


def sites(check: Callable[..., Any]) -> list[Site]:
    """The formula side of a check, and its refutations and facts."""
    own = unit_of(check)
    if own is None:
        return []
    parts = functions(loaded(own.tree), own)
    units = [own, *(u for u in parts.values() if any(calls(u.tree, (*COMPARED, *REFUTED, *OTHER))))]
    instance: set[str] = set()
    formula: dict[str, tuple[Unit, str]] = {}
    found: list[Site] = []
    for unit in units:
        bound = definitions(unit.tree)
        held = _instance(unit, bound)
        instance |= set(functions(held, unit))
        for call in calls(unit.tree, COMPARED):
            kind, value = call.func.id, argument(call, "predicted", 2)  # type: ignore[attr-defined]
            if value is None:
                continue
            near = live(bound, call.lineno)
            leads = reach(loaded(value), near) - held
            found.append(Site(unit, value, kind, final=True))
            found += [Site(unit, one.value, kind) for one in near if one.names & leads and not one.names & held]
            formula |= {name: (helper, kind) for name, helper in functions(leads, unit).items()}
        found += [Site(unit, call, call.func.id) for call in calls(unit.tree, (*REFUTED, *OTHER))]  # type: ignore[attr-defined]
    compared = {unit.tree for unit in units}
    found += [Site(u, u.tree, k) for name, (u, k) in formula.items() if name not in instance and u.tree not in compared]
    return _once(found)


def _instance(unit: Unit, bound: list[Definition]) -> set[str]:
    """Every name that leads to what is measured, and whatever is drawn."""
    first = {unit.tree.args.args[0].arg} if unit.tree.args.args else set()
    names = set(first) if first == {"draw"} else set()
    for call in calls(unit.tree, (*COMPARED, *REFUTED)):
        measured = argument(call, "measured", 1)
        names |= loaded(measured) if measured is not None else set()
    for call in calls(unit.tree, ("moves",)):
        names |= set().union(*map(loaded, call.args[1:]))
    drawn = [one.names for one in bound if "draw" in loaded(one.value)]
    return reach(names.union(*drawn), bound)


def _once(found: list[Site]) -> list[Site]:
    """Each expression once, under the strictest comparison it leads to; none inside another."""
    ranked = sorted(found, key=lambda site: (*COMPARED, *REFUTED, *OTHER).index(site.finding))
    kept: dict[int, Site] = {}
    for site in ranked:
        kept.setdefault(id(site.node), site)
    return sorted(kept.values(), key=lambda s: (s.unit.module.__name__, s.node.lineno, s.node.col_offset))  # type: ignore[attr-defined]
