"""Where rules live: families of pure functions, merged into a registry that is passed by value."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from normgauge.instrument.rules.flow import Context, Flow, Transfer
from normgauge.instrument.trace.step import Step

RuleFunction = Callable[[Step, tuple[Flow, ...], Context], Transfer]
TORCH = os.path.dirname(torch.__file__)
FUNCTIONS = {
    name: function
    for name, function in vars(F).items()
    if not inspect.isfunction(function) or function.__code__.co_filename.startswith(TORCH)
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what it covers and what it says.

    Attributes:
        id: ``family.name``.
        function: computes the transfer.
        targets: printable names of what it covers.
        claim: id of the claim it rests on.
        complex: whether it holds for complex numbers, with moduli for sizes; rules of the user's own are believed.
        formula, holds, source: from the docstring.
    """

    id: str
    function: RuleFunction
    targets: tuple[str, ...]
    claim: str | None
    summary: str
    formula: str
    holds: str
    source: str
    complex: bool = False


class Family:
    """A named set of rules; one file each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.table: dict[Any, Rule] = {}

    def add(
        self, *targets: Any, claim: str | None = None, complex: bool = False
    ) -> Callable[[RuleFunction], RuleFunction]:
        """Register a rule for module types and functions.

        Raises:
            TypeError: for a target that is neither.
            ValueError: for one that has a rule already.
        """

        def register(function: RuleFunction) -> RuleFunction:
            rule = make_rule(f"{self.name}.{function.__name__}", function, targets, claim, complex)
            for target in targets:
                if not callable(target):
                    raise TypeError(f"{rule.id}: expected a module type or a function, got {target!r}")
                if target in self.table:
                    raise ValueError(f"{rule.id}: {printable(target)} has the rule {self.table[target].id} already")
                self.table[target] = rule
            return function

        return register


class Registry:
    """Rules by target. A module type inherits its nearest ancestor's rule only if it inherits ``forward`` too."""

    def __init__(self, table: Mapping[Any, Rule]) -> None:
        self._table = dict(table)

    @classmethod
    def merge(cls, *families: Family) -> Registry:
        """A registry with all rules of ``families``.

        Raises:
            ValueError: when two families cover the same target.
        """
        table: dict[Any, Rule] = {}
        for family in families:
            for target, rule in family.table.items():
                if target in table:
                    raise ValueError(f"{printable(target)} has two rules: {table[target].id} and {rule.id}")
                table[target] = rule
        return cls(table)

    def extended(self, rules: Mapping[Any, RuleFunction]) -> Registry:
        """A new registry in which ``rules`` (target -> function) come first; this one does not change."""
        own = {t: make_rule(f"user.{f.__name__}", f, (t,), None, complex=True) for t, f in rules.items()}
        return Registry({**self._table, **own})

    def lookup(self, target: Any) -> Rule | None:
        """The rule for a function or a module type, or None."""
        if not (isinstance(target, type) and issubclass(target, nn.Module)):
            return self._table.get(target)
        for ancestor in target.__mro__:
            rule = self._table.get(ancestor)
            if rule is not None:
                return rule if inherits_forward(target, ancestor) else None
        return None

    def is_leaf(self, kind: type[nn.Module]) -> bool:
        """Whether the tape takes a module of this class as one step: its forward is the one its rule knows."""
        return self.lookup(kind) is not None

    def is_own(self, target: Any) -> bool:
        """Whether the user gave the rule for a target."""
        rule = self.lookup(target)
        return rule is not None and rule.id.startswith("user.")

    def entries(self) -> list[Rule]:
        """Every rule once, by id."""
        return sorted({rule.id: rule for rule in self._table.values()}.values(), key=lambda rule: rule.id)

    def targets(self) -> Iterable[Any]:
        """Everything that has a rule."""
        return self._table.keys()


def inherits_forward(kind: Any, ancestor: Any) -> bool:
    """Whether a module type runs its ancestor's ``forward`` unchanged, with all that it calls on itself.

    A forward of torch's own that somebody has exchanged is not what its rule knows.
    """
    forward = ancestor.forward
    code = getattr(forward, "__code__", None)
    if ancestor.__module__.startswith("torch.") and (code is None or not code.co_filename.startswith(TORCH)):
        return False
    if kind.forward is not forward:
        return False
    used = {"__getattr__", "__getattribute__"} | names_used(ancestor, forward)
    if ancestor.__module__.startswith("torch.") and any(vars(F).get(name) is not FUNCTIONS.get(name) for name in used):
        return False
    between = kind.__mro__[: kind.__mro__.index(ancestor)]
    return not any(used & set(vars(cls)) for cls in between)


@functools.cache
def names_used(kind: Any, function: Any) -> frozenset[str]:
    """Every attribute name that ``function``, or a method of ``kind`` it calls, looks up."""
    found: set[str] = set()
    front = [function]
    while front:
        code = getattr(front.pop(), "__code__", None)
        fresh = set() if code is None else set(code.co_names) - found
        found |= fresh
        front.extend(vars(cls)[name] for cls in kind.__mro__ for name in fresh if name in vars(cls))
    return frozenset(found)


def make_rule(
    rule_id: str, function: RuleFunction, targets: Iterable[Any], claim: str | None, complex: bool = False
) -> Rule:
    """The rule of a function, with formula, validity and source read from its docstring."""
    doc = inspect.getdoc(function) or ""
    head, _, rest = doc.partition("\n")
    fields = dict(re.findall(r"^(Holds|Source|Claim):\s+(.*(?:\n(?!Holds|Source|Claim|\n).*)*)", rest, re.MULTILINE))
    formula = re.split(r"^(?:Holds|Source|Claim):", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return Rule(
        id=rule_id,
        function=function,
        targets=tuple(printable(t) for t in targets),
        claim=claim,
        summary=head.strip(),
        formula=" ".join(formula.split()),
        holds=" ".join(fields.get("Holds", "").split()),
        source=" ".join(fields.get("Source", "").split()),
        complex=complex,
    )


def spellings(*names: str) -> list[Any]:
    """Every module, function and tensor method that torch has under these names, once each."""
    found: list[Any] = []
    for name in names:
        for space in (
            (torch.Tensor,) if name.startswith("__") else (nn, F, torch, torch.Tensor)
        ):  # torch.__eq__ is not ours
            target = getattr(space, name, None)
            if callable(target) and target not in found:
                found.append(target)
    return found


def printable(target: Any) -> str:
    """The name of a target as one writes it: ``torch.nn.Linear``, ``torch.nn.functional.relu``, ``torch.Tensor.T``."""
    if isinstance(target, type):
        module = target.__module__
        return f"torch.nn.{target.__name__}" if module.startswith("torch.nn.") else f"{module}.{target.__name__}"
    owner = getattr(target, "__self__", None)
    if getattr(target, "__name__", "") == "__get__" and owner is not None:
        return f"torch.Tensor.{owner.__name__}"
    kind = type(target).__name__
    name = getattr(target, "__name__", repr(target))
    if kind in ("method_descriptor", "wrapper_descriptor"):
        return f"torch.Tensor.{name}"
    module = getattr(target, "__module__", None) or "torch"
    spoken = {"torch._C._nn": "torch.nn.functional", "torch._VariableFunctions": "torch"}
    return f"{spoken.get(module, module)}.{name}"
