import pytest
import torch
from torch import Tensor, nn

from normgauge.certificates.facts.reads import Region, lies_under, refuse_unpaid, says_nothing, unpaid_reads
from normgauge.core.errors import InputError

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


class Adds(nn.Module):
    """A linear map and something that is added to what it gives."""

    def __init__(self, extra: Tensor) -> None:
        super().__init__()
        self.linear, self.extra = nn.Linear(3, 3), extra

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear(x) + self.extra
        return found


def left(model: nn.Module, *free: str) -> list[str]:
    return unpaid_reads(model, X.clone(), list(model.parameters()), free)


def test_what_was_paid_or_computed_or_says_nothing_is_not_named() -> None:
    assert left(nn.Linear(3, 2)) == []
    assert left(Adds(torch.arange(3.0))) == left(Adds(torch.ones(3))) == left(Adds(torch.tensor(0.7))) == []
    assert unpaid_reads(nn.Linear(3, 2), X.clone(), [], ()) == ["weight (float32, 2×3)", "bias (float32, 2)"]


def test_a_tensor_on_the_side_is_named_and_refused_unless_it_is_declared() -> None:
    model = Adds(torch.tensor([0.1, 0.5, 0.2]))
    assert left(model) == ["extra (float32, 3)"]
    with pytest.raises(InputError, match=r"depends on extra \(float32, 3\), which may know D"):
        refuse_unpaid(model, X, list(model.parameters()), ())
    assert left(model, "extra") == []
    with pytest.raises(InputError, match=r"data_free: expected names .*; got 'extras'"):
        left(model, "extras")


def test_a_view_of_what_was_paid_is_paid_and_the_rest_of_its_storage_is_not() -> None:
    whole = torch.randn(12, generator=torch.Generator().manual_seed(1))
    model = Adds(whole[3:6])
    assert left(model) == ["extra (float32, 3)"]
    assert unpaid_reads(model, X.clone(), [*model.parameters(), whole[:6]], ()) == []
    assert not Region.of(whole[::2]).holds(Region.of(whole[1:2]))  # it lies between, and is not part of it


@pytest.mark.parametrize(
    ("tensor", "nothing"),
    [
        (torch.zeros(2, 3), True),
        (torch.arange(5), True),
        (torch.arange(4.0).expand(3, 4), True),
        (torch.ones(4, 4).tril(), True),
        (torch.full((3, 3), -torch.inf).triu(1), True),
        (torch.tensor([0.0, 1.0, 3.0]), False),
        (torch.ones(4, 4).tril().roll(1, 0), False),
        (torch.eye(3), False),
    ],
    ids=["zeros", "places", "rows of places", "causal", "causal, infinite", "numbers", "moved mask", "eye"],
)
def test_constants_of_the_trade_say_nothing(tensor: Tensor, nothing: bool) -> None:
    assert says_nothing(tensor) is nothing


def test_names_lie_under_modules_and_not_under_prefixes() -> None:
    assert lies_under("block.weight", "block") and lies_under("block", "block")
    assert not lies_under("blocks.weight", "block")
