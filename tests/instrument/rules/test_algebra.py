"""Polynomials that are read off a trace, put back into numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from normgauge.instrument.rules.algebra import (
    Foreign,
    Poly,
    Reader,
    X,
    frozen,
    mean,
    plus,
    polynomial_power,
    polynomial_product,
    thawed,
)
from tests.instrument.rules.one_step import composed

LINE: Poly = {((X, 1.0),): 1.0}


def evaluate(poly: Poly, x: Tensor) -> Tensor:
    """The sum of coefficients times products of powers of atoms."""
    total = torch.zeros(())
    for monomial, factor in poly.items():
        term = torch.tensor(factor, dtype=torch.float64)
        for atom, power in monomial:
            term = term * atom_value(atom, x) ** power
        total = total + term
    return total


def atom_value(atom: tuple, x: Tensor) -> Tensor:
    if atom[0] == "x":
        return x
    if atom[0] == "mean":
        return evaluate({atom[2]: 1.0}, x).mean(tuple(atom[1]), keepdim=True)
    inner = evaluate(thawed(atom[1]), x)
    return {"root": inner, "floor": inner.clamp_min(atom[-1] if atom[0] == "floor" else 0.0)}.get(
        atom[0], inner.tanh() if atom[0] == "tanh" else inner
    )


def read(function, x: Tensor) -> tuple[Poly, Tensor]:
    trace = composed(function, x).trace
    assert trace.output is not None
    return Reader(trace.sources[0]).read(trace.output)[0], trace.output.tensor


READ = {
    "a cubic": lambda x: (2 * x - 1).pow(3) / 4,
    "a variance": lambda x: x.var(-1, keepdim=True),
    "a deviation": lambda x: x.std(-1, unbiased=False, keepdim=True) + 1,
    "a length": lambda x: x.norm(dim=-1, keepdim=True) * x,
    "mean of a product": lambda x: (x * x.mean(-1, keepdim=True)).mean(-1, keepdim=True),
    "a floor": lambda x: x.square().mean(-1, keepdim=True).clamp(min=0.5).rsqrt() * x,
    "tanh": lambda x: x * torch.tanh(x + x * x),
    "sums": lambda x: torch.sub(x.sum(-1, keepdim=True), x, alpha=0.5),
    "axes put back": lambda x: x - x.mean(-1).unsqueeze(-1),
    "from the right": lambda x: 3 - 2 / x.square().add(1).sqrt(),
}


@pytest.mark.parametrize("name", READ)
def test_a_polynomial_computes_what_was_read(name):
    x = torch.randn(2, 3, 5).double()
    poly, out = read(READ[name], x)
    torch.testing.assert_close(evaluate(poly, x).expand_as(out), out)


def test_every_way_to_write_a_variance_is_one_polynomial():
    ways = [
        lambda x: x.var(-1, unbiased=False, keepdim=True),
        lambda x: (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True),
        lambda x: x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2,
        lambda x: torch.var_mean(x, -1, correction=0, keepdim=True)[0] * 1.0,
    ]
    forms = {frozen(read(way, torch.randn(2, 4).double())[0]) for way in ways}
    assert len(forms) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.median(-1, keepdim=True).values,
        lambda x: x.norm(p=1, dim=-1, keepdim=True),
        lambda x: x - x.mean(-1),  # broadcast against another axis
        lambda x: x.reshape(5, 5).T * 1.0,
        lambda x: (x + x.sin()).pow(2),
        lambda x: (1 + x + x.mean(-1, keepdim=True) + x.mean(0) + x.tanh()).pow(2),  # too many terms
    ],
)
def test_what_is_no_polynomial_is_refused(function):
    with pytest.raises(Foreign):
        read(function, torch.randn(5, 5).double())


def test_what_cancels_to_rounding_is_dropped():
    third = {((X, 1.0),): 1 / 3}
    assert plus(plus(third, third), LINE, -2 / 3) == {}
    assert plus(LINE, LINE, -1 + 1e-9) != {}


def test_powers_and_roots():
    x = torch.rand(4).double() + 1
    square = polynomial_product(LINE, LINE)
    assert square == polynomial_power(LINE, 2.0)
    root = polynomial_power(plus(square, {(): 1.0}), 0.5)
    assert polynomial_power(root, -2.0) == {((("root", frozen(plus(square, {(): 1.0}))), -1.0),): 1.0}
    torch.testing.assert_close(evaluate(polynomial_power(root, -1.0), x), (x * x + 1).rsqrt())
    for base, power in (({}, -1.0), ({(): -2.0}, 0.5)):
        with pytest.raises(Foreign):
            polynomial_power(base, power)


def test_a_mean_leaves_what_does_not_vary():
    dims = frozenset({0})
    inner = mean(LINE, dims)
    assert mean(inner, dims) == inner and mean(polynomial_product(inner, LINE), dims) == polynomial_power(inner, 2.0)
