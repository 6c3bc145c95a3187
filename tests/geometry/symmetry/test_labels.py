"""Scale equations are solved as dense linear algebra solves them."""

from __future__ import annotations

import torch

from normgauge.geometry.symmetry.labels import Torus, eliminate


def test_elimination_against_dense_linear_algebra():
    draw = torch.Generator().manual_seed(0)
    for _ in range(30):
        matrix = torch.randint(-2, 3, (5, 8), generator=draw).double()
        rows = [{j + 1: float(v) for j, v in enumerate(row)} for row in matrix.tolist()]
        solved = eliminate(row.items() for row in rows)
        free = [j for j in range(1, 9) if j not in solved]
        assert len(free) == 8 - int(torch.linalg.matrix_rank(matrix))
        for chosen in free:
            value = torch.zeros(9, dtype=torch.float64)
            value[chosen] = 1.0
            for pivot, terms in solved.items():
                value[pivot] = terms.get(chosen, 0.0)
            assert torch.allclose(matrix @ value[1:], torch.zeros(5, dtype=torch.float64), atol=1e-9)


def test_equal_labels_are_one_variable():
    torus = Torus()
    a, b = torus.fresh(3), torus.fresh(3)
    torus.same(a[:2], b[:2])
    torus.fix(b[1:2])
    assert len(torus.solve().free) == 3  # a0 = b0, a2, b2; a1 and b1 are fixed
