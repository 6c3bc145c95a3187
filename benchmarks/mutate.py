"""Small mistakes put into the formula side of a check: a wrong constant, index, exponent, operator or function."""

from __future__ import annotations
import __future__

import ast
import copy
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from normgauge.core.claim import Comparison, ComparisonKind, Outcome
from normgauge.theory.claim import Claim

TOLERANCES = frozenset({"rel", "scale", "by", "dtype", "device", "generator"})
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Add,
}  # fmt: skip
CONDITIONS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
NAMES = {
    "max": "min", "min": "max", "amax": "amin", "amin": "amax", "prod": "sum", "mean": "sum", "floor": "ceil",
    "ceil": "floor", "sin": "cos", "cos": "sin", "tanh": "sin", "sinh": "cosh", "cosh": "sinh",
}  # fmt: skip
DROPPED = frozenset({"sqrt", "abs", "square", "log", "exp"})
SECONDS = 30


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        claim: the id.
        kind: constant, index, exponent, operator, function, condition, factor, printed or fact.
        finding: what the formula is compared for.
        line: in the source.
        before, after: the expression.
        check: the check with the mistake.
    """

    claim: str
    kind: str
    finding: str
    line: int
    before: str
    after: str
    check: Callable[..., Any]


def edits(root: ast.AST) -> Iterator[tuple[str, ast.AST, Callable[[ast.AST], ast.AST]]]:
    """Every mistake that can be made below ``root``: its kind, where, and what to put there."""
    above = {child: (node, name) for node in ast.walk(root) for name, child in _children(node)}
    for node in ast.walk(root):
        if _left_alone(node, above):
            continue
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            kind = _kind(node, above)
            yield from ((kind, node, _constant(value)) for value in _wrong(node.value))
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield "operator", node, lambda n: ast.BinOp(n.left, OPERATORS[type(n.op)](), n.right)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in CONDITIONS:
            yield "condition", node, lambda n: ast.Compare(n.left, [CONDITIONS[type(n.ops[0])]()], n.comparators)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Call):
            yield from _calls(node)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield name, item


def _left_alone(node: ast.AST, above: dict[ast.AST, tuple[ast.AST, str]]) -> bool:
    """Tolerances, words, annotations and decorators are no part of a formula."""
    while node in above:
        parent, name = above[node]
        if isinstance(parent, ast.JoinedStr) or (isinstance(parent, ast.keyword) and parent.arg in TOLERANCES):
            return True
        if name in ("annotation", "returns", "decorator_list"):
            return True
        node = parent
    return False


def _kind(node: ast.AST, above: dict[ast.AST, tuple[ast.AST, str]]) -> str:
    while node in above:
        parent, name = above[node]
        if isinstance(parent, ast.Subscript) and name == "slice":
            return "index"
        if isinstance(parent, ast.keyword) and parent.arg == "dim":
            return "index"
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Pow) and name == "right":
            return "exponent"
        if not isinstance(parent, ast.UnaryOp | ast.Slice | ast.Tuple):
            return "constant"
        node = parent
    return "constant"


def _wrong(value: float) -> list[float]:
    if isinstance(value, int):
        return [value + 1, value - 1]
    return [2 * value, value / 2] if value else [1.0]


def _constant(value: float) -> Callable[[ast.AST], ast.AST]:
    return lambda node: ast.Constant(value)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST, Callable[[ast.AST], ast.AST]]]:
    called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if called in DROPPED:
        yield "function", node, lambda n: n.args[0] if n.args else n.func.value  # type: ignore[attr-defined]
    elif called == "sum" and isinstance(node.func, ast.Name):
        yield "function", node, lambda n: ast.Call(ast.Name("max", ast.Load()), n.args, [])  # type: ignore[attr-defined]
    elif called == "sum":
        yield "function", node, lambda n: _renamed(n, "mean")
    elif called == "prod" and isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "math.prod":
        yield "function", node, lambda n: _renamed(n, "fsum")
    elif called in NAMES:
        yield "function", node, lambda n: _renamed(n, NAMES[called])


def _renamed(node: Any, name: str) -> ast.AST:
    made = copy.copy(node)
    made.func = copy.copy(node.func)
    if isinstance(made.func, ast.Name):
        made.func.id = name
    else:
        made.func.attr = name
    return made


def whole(call: ast.AST, finding: str) -> Iterator[tuple[str, ast.AST, Callable[[ast.AST], ast.AST]]]:
    """Mistakes that take a whole comparison: a printed formula made right, a number that stays, a fact denied."""
    assert isinstance(call, ast.Call)
    if finding in ("refutes", "exceeds"):
        for keyword in call.keywords:
            if keyword.arg == "published":
                yield "printed", keyword.value, lambda _: copy.deepcopy(call.args[1])
    elif finding == "moves":
        yield "fact", call.args[2], lambda _: copy.deepcopy(call.args[1])
    else:
        yield "fact", call.args[1], lambda fact: ast.UnaryOp(ast.Not(), fact)  # type: ignore[arg-type]


def factor(finding: str) -> Callable[[ast.AST], ast.AST]:
    """Twice a number, half a bound: for a formula in which nothing smaller can be changed."""
    wrong = ast.Constant(2.0 if finding == "equals" else 0.5)
    return lambda node: ast.BinOp(node, ast.Mult(), wrong)  # type: ignore[arg-type]


def changed(root: ast.FunctionDef, node: ast.AST, put: Callable[[ast.AST], ast.AST]) -> ast.FunctionDef:
    """A copy of a function with one node exchanged."""
    place = next(i for i, n in enumerate(ast.walk(root)) if n is node)
    made = copy.deepcopy(root)
    target = list(ast.walk(made))[place]
    new = put(target)
    for parent in ast.walk(made):
        if parent is new:
            continue
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(item is target for item in value):
                setattr(parent, name, [new if item is target else item for item in value])
    return ast.fix_missing_locations(made)


def compiled(check: Callable[..., Any], unit: Any, tree: ast.FunctionDef, body: list[ast.stmt]) -> Callable[..., Any]:
    """The check in a copy of its module in which one function has another tree.

    Args:
        check: the check itself.
        unit: the function that was changed.
        tree: what it was changed to.
        body: all functions of the check's module, so that those between both meet the changed one.
    """
    names: dict[str, Any] = dict(check.__globals__)
    names |= {
        name: cell.cell_contents for name, cell in zip(check.__code__.co_freevars, check.__closure__ or (), strict=True)
    }
    _run(body, names)
    home = names if unit.function.__globals__ is check.__globals__ else dict(unit.function.__globals__)
    _run([_bare(tree)], home)
    made = names[unit.tree.name] = home[unit.tree.name]
    if unit.function is check:
        made.__defaults__ = check.__defaults__
        return made
    return names[check.__name__]


def bodies(module: ast.Module) -> list[ast.stmt]:
    return [_bare(node) for node in module.body if isinstance(node, ast.FunctionDef)]


def _bare(tree: ast.FunctionDef) -> ast.FunctionDef:
    """The function without the decorator that registers it."""
    made = copy.copy(tree)
    made.decorator_list = [d for d in tree.decorator_list if "claims." not in ast.unparse(d)]
    return made


def _run(body: list[ast.stmt], names: dict[str, Any]) -> None:
    flag = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), "<mutant>", "exec", flag, dont_inherit=True), names)


def mutants(claim: Claim, sites: list[Any], body: list[ast.stmt], factors: bool = False) -> list[Mutant]:
    """Every mistake in a claim's check.

    Args:
        claim: with a check of its own.
        sites: the formula side, as ``formula_side.sites`` finds it.
        body: the functions of the check's module.
        factors: twice the number, half the bound, also of formulas in which something smaller can be changed.
    """
    assert claim.check is not None
    found: dict[tuple[int, str, str], Mutant] = {}
    for site in sites:
        made = list(edits(site.node) if site.finding in ("equals", "below") else whole(site.node, site.finding))
        if site.final and (factors or not made):
            made.append(("factor", site.node, factor(site.finding)))
        for kind, node, put in made:
            tree = changed(site.unit.tree, node, put)
            before, after = _difference(site.unit.tree, tree)
            key = (id(node), kind, after)
            if before != after and key not in found:
                check = compiled(claim.check, site.unit, tree, body)
                found[key] = Mutant(claim.id, kind, site.finding, node.lineno, before, after, check)  # type: ignore[attr-defined]
    return list(found.values())


def _difference(one: ast.AST, other: ast.AST) -> tuple[str, str]:
    """The first line in which two functions differ."""
    lines = zip(ast.unparse(one).splitlines(), ast.unparse(other).splitlines(), strict=False)
    return next(((a.strip(), b.strip()) for a, b in lines if a != b), ("", ""))


def run(claim: Claim, seed: int, check: Callable[..., Any] | None = None) -> Outcome:
    """The outcome of a claim with its own check or another; one that does not end counts as one that failed."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no end after {SECONDS} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return (claim if check is None else replace(claim, check=check)).run(seed)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def judged(claim: Claim, check: Callable[..., Any], seeds: Sequence[int], base: list[Outcome]) -> tuple[str, str]:
    """The fate of a mutant's check, and its problem; seeds after the first that it fails on are not run."""
    after: list[Outcome] = []
    for seed in seeds:
        after.append(run(claim, seed, check))
        if not after[-1].passed:
            break
    return fate(base[: len(after)], after), after[-1].problem


def fate(base: list[Outcome], after: list[Outcome]) -> str:
    """What became of a mutant, from the outcomes of the true check and of the mutant on the same seeds.

    ``killed`` by a comparison or ``crashed``. A survivor is the ``same`` where no number moved by more than a
    millionth, a ``weaker bound`` where only bounds rose, one with ``room`` where a bound fell and still holds, else
    ``missed``.
    """
    if any(outcome.problem for outcome in after):
        return "crashed"
    if not all(outcome.passed for outcome in after):
        return "killed"
    if [len(o.findings) for o in base] != [len(o.findings) for o in after]:
        return "missed"
    pairs = [pair for b, a in zip(base, after, strict=True) for pair in zip(b.findings, a.findings, strict=True)]
    moved = [(one, other) for one, other in pairs if _moved(one, other)]
    if not moved:
        return "same"
    if any(one.kind is not ComparisonKind.BELOW or one.measured != other.measured for one, other in moved):
        return "missed"
    rose = all((other.predicted or 0.0) >= (one.predicted or 0.0) for one, other in moved)
    return "weaker bound" if rose else "room"


def _moved(one: Comparison, other: Comparison) -> bool:
    sides = ((one.measured, other.measured), (one.predicted, other.predicted), (one.published, other.published))
    return any(a is None or b is None or abs(a - b) > 1e-6 * max(abs(a), abs(b)) for a, b in sides if a != b)
