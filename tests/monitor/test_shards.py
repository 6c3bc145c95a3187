"""Products and norms from the parts of matrices, as two processes would take them."""

from __future__ import annotations

import pytest
import torch

import normgauge as ng
from normgauge.monitor.shards import Block, ShardedMaps, agreed


class Others:
    """Adds up what each of several processes hands in, one after the other: each call is repeated for all of them."""

    def __init__(self) -> None:
        self.sum: torch.Tensor | None = None

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        self.sum = tensor.clone() if self.sum is None else self.sum + tensor
        return tensor


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("copies", [1, 2])
def test_products_of_parts_add_up_to_those_of_the_whole(cut, copies):
    torch.manual_seed(0)
    whole = torch.randn(7, 5, dtype=torch.float64)
    given, back = torch.randn(1, 3, 5, dtype=torch.float64), torch.randn(1, 3, 7, dtype=torch.float64)
    forward, adjoint, squares = Others(), Others(), Others()
    for _ in range(copies):
        start = 0
        for part in whole.split(3, dim=cut):
            place = (start, 0) if cut == 0 else (0, start)
            for others, call in ((forward, "forward"), (adjoint, "adjoint"), (squares, "sizes")):
                maps = ShardedMaps([part], [Block((7, 5), place, 1 / copies, others, True)], torch.float64)
                maps.forward(given) if call == "forward" else maps.adjoint(back) if call == "adjoint" else maps.sizes()
            start += part.shape[cut]
    assert torch.allclose(forward.sum, given @ whole.T)
    assert torch.allclose(adjoint.sum, back @ whole)
    assert squares.sum.item() == pytest.approx(whole.square().sum().item())


def test_all_take_what_the_first_process_has():
    others = Others()
    for first, value in ((True, 2.0), (False, 5.0)):
        agreed([torch.full((2,), value), torch.tensor(value)], Block((1,), (0,), 1.0, others, first))
    assert others.sum.tolist() == [2.0, 2.0, 2.0]


def test_a_stage_of_a_pipeline_is_refused_with_words(tmp_path):
    class PipelineStage:
        pass

    with pytest.raises(ng.NormgaugeError, match=r"got PipelineStage.*stage\.submod"):
        ng.Monitor(PipelineStage(), tmp_path)  # type: ignore[arg-type]
