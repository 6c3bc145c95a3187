"""Gram matrices for proofs: what they enclose, on processors with and without products of bytes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from normgauge.monitor import grams
from normgauge.monitor.grams import LARGEST, SMALLEST, Gram, gram, multiplies_bytes
from normgauge.monitor.proofs import factored_proof


def matrices(rows: int, columns: int) -> dict[str, Tensor]:
    plain = torch.randn(rows, columns)
    return {
        "plain": plain,
        "heavy": plain**3,
        "rows of many sizes": plain * torch.logspace(-12, 2, rows)[:, None],
        "one direction": torch.randn(rows, 1) @ torch.randn(1, columns) + 1e-3 * plain,
        "few entries": plain * (torch.rand(rows, columns) < 0.01),
        "all alike": torch.ones(rows, columns),  # each entry at the end of a row's steps
        "signs": plain.sign() * (1 + 1e-3 * torch.rand(rows, columns)),
        "between two steps": (plain * 40).round().add(0.5).mul(1 / 127),
        "rows of zeros": plain * (torch.arange(rows) % 3 == 0)[:, None],
        "small": 1e-5 * plain,
    }


def enclosed(made: Gram) -> float:
    lower = made.product.double().tril()
    whole = lower + lower.T - lower.diagonal().diag()
    return math.sqrt(max(0.0, float(torch.linalg.eigvalsh(whole)[-1])) + made.lost) + made.apart


@pytest.mark.parametrize(("rows", "columns"), [(129, 140), (130, 1100), (512, 512)])
@pytest.mark.parametrize("by_bytes", [False, True])
def test_the_norm_is_at_most_what_a_gram_matrix_says(rows: int, columns: int, by_bytes: bool) -> None:
    torch.manual_seed(rows + by_bytes)
    for kind, matrix in matrices(rows, columns).items():
        norm = float(torch.linalg.matrix_norm(matrix.double(), 2))
        made = grams._whole_gram(matrix, norm) if by_bytes else grams._float_gram(matrix)
        assert made is not None
        assert norm <= enclosed(made) <= (1.005 if not by_bytes else 1.06 if kind == "heavy" else 1.01) * norm, kind


def test_nothing_of_a_matrix_is_left_out_but_what_is_told() -> None:
    """The whole numbers, put together again, are the matrix up to the part of a step that is told."""
    torch.manual_seed(0)
    for matrix in matrices(130, 200).values():
        norm = float(torch.linalg.matrix_norm(matrix.double(), 2))
        made = grams._whole_gram(matrix, norm)
        assert made is not None
        exact = (matrix.double() @ matrix.double().T).tril()
        off = (made.product.double().tril() - exact).norm()
        size = float(matrix.double().norm())
        assert off <= made.lost + 2 * size * made.apart + made.apart**2
        assert made.apart <= math.sqrt(200) * (float(matrix.abs().amax(1).norm()) / 126 + SMALLEST * norm * 12) / 499


def test_what_is_no_number_has_no_gram_matrix() -> None:
    for bad in (math.nan, math.inf):
        matrix = torch.randn(130, 140)
        matrix[7, 9] = bad
        assert grams._whole_gram(matrix, 20.0) is None
        assert grams._float_gram(matrix) is None


def test_a_cpu_without_products_of_bytes_proves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    for shape in ((200, 300), (300, 200)):  # of the second, columns are the rows of the product
        matrix = torch.randn(shape)
        norm = float(torch.linalg.matrix_norm(matrix.double(), 2))
        for known in (True, False):
            if known and not multiplies_bytes():
                continue
            monkeypatch.setattr(grams, "multiplies_bytes", lambda known=known: known)
            begun = factored_proof([matrix], [0.995 * norm], [3], 7)
            assert begun is not None
            ((lower, upper),) = begun.ends([math.nan]).values()
            assert lower == 0.995 * norm
            assert norm <= upper <= 1.05 * lower


def test_sums_of_bytes_that_do_not_hold_all_bits_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on processors whose sums of two products end at 16 bits."""
    true = torch._int_mm

    def saturated(left: Tensor, right: Tensor) -> Tensor:
        return true(left, right).clamp(-(2**15), 2**15 - 1)

    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True)
    monkeypatch.setattr(torch, "_int_mm", saturated)
    multiplies_bytes.cache_clear()
    assert not multiplies_bytes()
    monkeypatch.setattr(torch, "_int_mm", true)
    multiplies_bytes.cache_clear()
    assert multiplies_bytes()
    assert LARGEST == 127
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    multiplies_bytes.cache_clear()
    assert not multiplies_bytes()
    monkeypatch.undo()
    multiplies_bytes.cache_clear()


def test_matrices_beyond_what_is_split_are_multiplied_as_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(rows: Tensor, norm: float) -> Gram:
        raise AssertionError

    monkeypatch.setattr(grams, "_whole_gram", never)
    monkeypatch.setattr(grams, "multiplies_bytes", lambda: True)
    assert gram(torch.randn(130, 140), 1e-7) is not None
    assert gram(torch.randn(130, 140), 1e7) is not None
    assert gram(torch.randn(2, grams.LONGEST + 1), 300.0) is not None
