"""One run written down: what is on the graph, what is not, and what writing in place does to it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from normgauge.core.errors import InputError
from normgauge.geometry.symmetry.graph import plain_kernels, record_graph

X, W = torch.randn(5, 3), torch.randn(4, 3)


def ops(run, **state: Tensor) -> list[str]:
    return [node.op for node in record_graph(run, state, [X]).nodes]


def test_a_layer_is_a_product_however_it_is_written():
    for way in (lambda: F.linear(X, W), lambda: X @ W.T, lambda: torch.einsum("bi,oi->bo", X, W)):
        assert [op for op in ops(way, w=W) if op not in ("t", "transpose", "permute", "unsqueeze", "view")] in (
            ["mm"], ["bmm"]
        )  # fmt: skip


def test_values_know_their_role_their_reader_and_what_they_depend_on():
    constant = torch.full((4,), 2.0)
    graph = record_graph(lambda: (X @ W.T) * constant, {"w": W}, [X])
    product, scaled = graph.nodes[-2:]
    assert (product.op, scaled.op) == ("mm", "mul") and graph.output is scaled.outputs[0]
    assert [v.role for v in scaled.inputs] == ["made", "constant"] and torch.equal(scaled.inputs[1].tensor, constant)
    assert graph.readers(product.outputs[0]) == [scaled]
    assert graph.weighed(product.outputs[0]) and not graph.weighed(scaled.inputs[1])
    assert graph.state["w"].role == "state" and product.inputs[0].role == "input"


def test_what_the_output_does_not_need_is_left_out_unless_python_saw_it():
    def run() -> Tensor:
        X.exp().sum()
        return (X @ W.T).relu() if float(X.cos().sum()) < 99 else X

    named = ops(run, w=W)
    assert "exp" not in named and {"cos", "_local_scalar_dense", "mm", "relu"} <= set(named)


def test_views_of_memory_that_was_written_to_are_mixed():
    def run() -> Tensor:
        h = X @ W.T
        part = h[:, :2]
        h.mul_(2.0)
        return part + 1

    graph = record_graph(run, {"w": W}, [X])
    assert [node.op for node in graph.nodes if node.mixed] == ["mul"]
    assert graph.nodes[-1].inputs[0].node.mixed  # what is added to is no longer the slice


def test_indices_that_come_from_the_batch_are_marked():
    chosen = record_graph(lambda: W.T[X[:, 0].argsort() % 3], {"w": W}, [X]).nodes[-1]
    given = record_graph(lambda: W.T[torch.tensor([0, 2])], {"w": W}, [X]).nodes[-1]
    assert chosen.op == given.op == "index" and chosen.chosen and not given.chosen


def test_a_run_that_fails_says_why_and_the_kernels_come_back():
    fast = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(InputError, match="does not run on this batch in float64: mat1 and mat2"):
        record_graph(lambda: X @ W, {"w": W}, [X])
    with plain_kernels():
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled() is fast
