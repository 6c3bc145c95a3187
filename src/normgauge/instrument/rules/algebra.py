"""What a value computes, as a polynomial over a base value: the proof behind `recognise`.

A polynomial maps monomials to coefficients; a monomial is a sorted tuple of (atom, power). Atoms are the base itself,
means over axes, non-integer powers of polynomials, and functions of polynomials. Means are pulled apart into sums and
factors that do not vary along their axes, so every way to write a variance ends in mean(x²) − mean(x)².
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from normgauge.instrument.trace.step import Step, Value, axes_of

Atom = tuple[Any, ...]
Monomial = tuple[tuple[Atom, float], ...]
Poly = dict[Monomial, float]
X: Atom = ("x",)
FUNCTIONS = {"tanh", "sigmoid", "erf", "softplus"}
ADDS = {"add": 1, "radd": 1, "iadd": 1, "sub": -1, "isub": -1, "subtract": -1, "rsub": -1}
TIMES = {"mul", "rmul", "imul", "multiply"}
OVER = {"div", "idiv", "rdiv", "truediv", "itruediv", "rtruediv", "divide", "true_divide"}
POWERS = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}
PASSING = {"clone", "contiguous", "detach", "alias"}
VIEWS = {"unsqueeze", "reshape", "view", "getitem"}
EUCLIDEAN = (2, None, "fro")
MOST_TERMS = 12
CANCELS = 1e-13  # of the larger coefficient: a difference below it is the rounding of the two


def norm_order(step: Step) -> Any:
    """The order argument of one of torch's norms; it is one of `EUCLIDEAN` for the ℓ2 norm of the entries."""
    linear = "linalg" in str(step.target) or step.kind in ("vector_norm", "linalg_norm", "linalg_vector_norm")
    return step.get(1, "ord" if linear else "p", 2)


class Foreign(Exception):
    """The value is not a polynomial in the base."""


def constant(number: float) -> Poly:
    """The constant polynomial with this value."""
    return {(): number}


def plus(a: Poly, b: Poly, factor: float = 1.0) -> Poly:
    """a + factor·b; what cancels to rounding is dropped."""
    total = dict(a)
    for monomial, c in b.items():
        old = total.get(monomial, 0.0)
        new = old + factor * c
        if abs(new) <= CANCELS * max(abs(old), abs(factor * c)):
            total.pop(monomial, None)
        else:
            total[monomial] = new
    return total


def polynomial_product(a: Poly, b: Poly) -> Poly:
    """a·b, multiplied out.

    Raises:
        Foreign: when that takes too many terms.
    """
    if len(a) * len(b) > MOST_TERMS:
        raise Foreign
    total: Poly = {}
    for left, c in a.items():
        for right, d in b.items():
            powers: dict[Atom, float] = dict(left)
            for atom, p in right:
                powers[atom] = powers.get(atom, 0.0) + p
            total = plus(total, {tuple(sorted(((k, p) for k, p in powers.items() if p), key=repr)): c * d})
    return total


def frozen(poly: Poly) -> tuple[Any, ...]:
    """The polynomial as a hashable tuple, its coefficients rounded to 12 digits."""
    return tuple(sorted(((m, float(f"{c:.12g}")) for m, c in poly.items()), key=repr))


def thawed(form: tuple[Any, ...]) -> Poly:
    """The polynomial that `frozen` made a tuple of."""
    return dict(form)


def polynomial_power(poly: Poly, p: float) -> Poly:
    """poly^p: small integers multiplied out, roots kept as powers of one atom (√Q)^(−1) = Q^(−½).

    Raises:
        Foreign: for a power of 0 or a root of a negative number.
    """
    if p in (1.0, 2.0, 3.0):
        result = poly
        for _ in range(int(p) - 1):
            result = polynomial_product(result, poly)
        return result
    if not poly or (set(poly) == {()} and poly[()] <= 0):
        raise Foreign
    if len(poly) == 1:
        ((monomial, c),) = poly.items()
        if not monomial:
            return constant(c**p)
        if c > 0 and all((atom[0] == "root" and not q.is_integer()) or atom[0] == "floor" for atom, q in monomial):
            return {tuple((atom, q * p) for atom, q in monomial): c**p}
    return {((("root", frozen(poly)), p),): 1.0}


def fixed_along(atom: Atom, dims: frozenset[int]) -> bool:
    """Whether an atom does not vary along ``dims``."""
    if atom[0] == "mean":
        return dims <= atom[1]
    if atom[0] in ("x", "constant"):
        return False
    return all(fixed_along(inner, dims) for monomial, _ in atom[1] for inner, _ in monomial)


def mean(poly: Poly, dims: frozenset[int]) -> Poly:
    """The mean over ``dims``: linear, and factors that do not vary along them come out."""
    total: Poly = {}
    for monomial, c in poly.items():
        outside = tuple((a, p) for a, p in monomial if fixed_along(a, dims))
        inside = tuple((a, p) for a, p in monomial if not fixed_along(a, dims))
        term: Poly = {outside: c}
        if inside:
            term = polynomial_product(term, {((("mean", dims, inside), 1.0),): 1.0})
        total = plus(total, term)
    return total


class Reader:
    """Reads what values compute in terms of one base value."""

    def __init__(self, base: Value) -> None:
        self.base = base
        self.shape = tuple(base.tensor.shape)
        self.known: dict[int, tuple[Poly, frozenset[int] | None]] = {base.index: ({((X, 1.0),): 1.0}, None)}
        self.constants: list[Tensor] = []

    def read(self, operand: Any) -> tuple[Poly, frozenset[int] | None]:
        """The polynomial, and the axes a reduction took away for good (None when it broadcasts against the base).

        Raises:
            Foreign: when the operand is not a polynomial in the base.
        """
        if not isinstance(operand, Value):
            return self._number(operand), None
        if operand.index not in self.known:
            if operand.step is None or operand.step.module is not None or operand.index < self.base.index:
                raise Foreign
            self.known[operand.index] = self._step(operand.step, operand)
        return self.known[operand.index]

    def _number(self, operand: Any) -> Poly:
        if isinstance(operand, int | float) and not isinstance(operand, bool):
            return constant(float(operand)) if operand else {}
        if isinstance(operand, Tensor) and operand.is_floating_point():
            if operand.numel() == 1:
                return constant(float(operand)) if float(operand) else {}
            if torch.broadcast_shapes(operand.shape, self.shape) == torch.Size(self.shape):
                self.constants.append(operand)
                return {((("constant", len(self.constants) - 1), 1.0),): 1.0}
        raise Foreign

    def _step(self, step: Step, value: Value) -> tuple[Poly, frozenset[int] | None]:
        name = step.kind.strip("_")
        if name in (
            "mean",
            "sum",
            "var",
            "std",
            "norm",
            "vector_norm",
            "linalg_vector_norm",
            "linalg_norm",
            "var_mean",
            "std_mean",
        ):
            return self._reduction(step, name, value)
        first, gone = self.read(step.args[0] if step.args else step.kwargs.get("input"))
        if name in PASSING:
            return first, gone
        if name in VIEWS:
            return first, self._restored(step, value, gone)
        if name in ADDS or name in TIMES or name in OVER:
            return self._binary(step, name, first, gone)
        if name in ("clamp", "clamp_min", "clip", "maximum", "max"):
            clamps = name.startswith("cl")
            floor, ceiling = (step.get(1, "min"), step.get(2, "max")) if clamps else (step.get(1, "other"), None)
            plain = isinstance(floor, int | float) if clamps else isinstance(floor, Tensor) and floor.numel() == 1
            if not plain or ceiling is not None or floor <= 0:
                raise Foreign
            return {((("floor", frozen(first), float(floor)), 1.0),): 1.0}, gone
        if name in FUNCTIONS:
            if len(step.args) > 1 or len(step.kwargs) > ("input" in step.kwargs):
                raise Foreign
            return {(((name, frozen(first)), 1.0),): 1.0}, gone
        if name == "neg":
            return polynomial_product(first, constant(-1.0)), gone
        exponent = step.get(1, "exponent") if name == "pow" else POWERS.get(name)
        if not isinstance(exponent, int | float):
            raise Foreign
        return polynomial_power(first, float(exponent)), gone

    def _binary(
        self, step: Step, name: str, first: Poly, gone: frozenset[int] | None
    ) -> tuple[Poly, frozenset[int] | None]:
        operand = step.get(1, "other")
        second, other_gone = self.read(operand)
        if set(step.kwargs) - {"other", "alpha"} or (isinstance(operand, Value) and gone != other_gone):
            raise Foreign
        if isinstance(operand, Tensor) and operand.numel() > 1 and gone is not None:
            raise Foreign
        alpha = float(step.kwargs.get("alpha", 1.0))
        if name in ("rsub", "rdiv", "rtruediv"):
            first, second = second, first
        if "add" in name:
            return plus(first, second, alpha), gone
        if "sub" in name:
            return plus(first, second, -alpha), gone
        return polynomial_product(first, polynomial_power(second, -1.0) if "div" in name else second), gone

    def _reduction(self, step: Step, name: str, value: Value) -> tuple[Poly, frozenset[int] | None]:
        poly, gone = self.read(step.args[0] if step.args else step.kwargs.get("input"))
        source = step.inputs[0].tensor
        if (
            gone is not None
            or source.ndim != len(self.shape)
            or any(n not in (1, m) for n, m in zip(source.shape, self.shape, strict=True))  # 1: reduced, broadcasts
            or step.kwargs.get("dtype") not in (None, torch.float64)
        ):
            raise Foreign
        length = "norm" in name
        dim = step.get(2 if length else 1, "dim")
        if length and norm_order(step) not in EUCLIDEAN:
            raise Foreign
        if dim is None or isinstance(dim, bool | str) or (name == "linalg_norm" and not isinstance(dim, int)):
            raise Foreign
        dims = frozenset(axes_of(dim, source.ndim))
        n = math.prod(source.shape[d] for d in dims)
        result = self._reduced(step, name, poly, dims, n, value.position)
        aligned = value.tensor.ndim == source.ndim or dims == frozenset(range(len(dims)))  # leading axes broadcast
        return result, None if aligned else dims

    def _reduced(self, step: Step, name: str, poly: Poly, dims: frozenset[int], n: int, position: int) -> Poly:
        first = mean(poly, dims)
        if name == "mean" or (name.endswith("_mean") and position == 1):
            return first
        if name == "sum":
            return polynomial_product(first, constant(float(n)))
        second = mean(polynomial_product(poly, poly), dims)
        if "norm" in name:
            return polynomial_power(polynomial_product(second, constant(float(n))), 0.5)
        given = step.get(2, "unbiased", True)
        correction = step.kwargs.get("correction", 1 if given else 0)
        if n <= correction:
            raise Foreign
        variance = polynomial_product(
            plus(second, polynomial_product(first, first), -1.0), constant(n / (n - correction))
        )
        return variance if name.startswith("var") else polynomial_power(variance, 0.5)

    def _restored(self, step: Step, value: Value, gone: frozenset[int] | None) -> frozenset[int] | None:
        """The axes still missing after a view that puts reduced axes back and keeps the order of entries.

        Raises:
            Foreign: for any other view.
        """
        shape = tuple(value.tensor.shape)
        if step.kind.strip("_") == "getitem":
            index = step.args[1] if isinstance(step.args[1], tuple) else (step.args[1],)
            if not all(i is None or i is Ellipsis or i == slice(None) for i in index):
                raise Foreign
        if gone is None:
            if shape != tuple(step.inputs[0].tensor.shape):
                raise Foreign
            return None
        if shape != tuple(1 if i in gone else n for i, n in enumerate(self.shape)):
            raise Foreign
        return None
