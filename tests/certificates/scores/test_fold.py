from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.certificates.scores.fold import folded_model
from tests.certificates.scores.made import conv_net, images, sample, trained


def test_the_folded_network_computes_the_same_and_the_model_is_untouched():
    data = images()
    net = trained(conv_net("batch"), data).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    twin = folded_model(net, data.inputs[:2])
    assert not [m for m in twin.modules() if isinstance(m, nn.BatchNorm2d)]
    assert net.training and all(torch.equal(v, net.state_dict()[k]) for k, v in before.items())
    assert torch.allclose(twin(data.inputs), net.eval()(data.inputs), atol=1e-5)


class Shared(nn.Module):
    """BatchNorm that cannot be folded: what it reads is read by another too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        y = self.linear(x)
        return self.norm(y) + y


class Twice(nn.Module):
    """One linear map under two normalizers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.one, self.two = nn.Linear(2, 2), nn.BatchNorm1d(2), nn.BatchNorm1d(2)

    def forward(self, x):
        return self.two(self.linear(self.one(self.linear(x))))


@pytest.mark.parametrize(
    "net",
    [Shared(), Twice(), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))],
    ids=["shared", "twice", "no-statistics"],
)
def test_a_batch_norm_that_cannot_be_folded_stays(net):
    twin = folded_model(net.eval(), sample(4).inputs)
    assert [m for m in twin.modules() if isinstance(m, nn.BatchNorm1d)]
    assert torch.equal(twin(sample(8).inputs), net(sample(8).inputs))


def test_parametrized_weights_are_written_out():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), nn.ReLU(), nn.Linear(3, 2)).eval()
    twin = folded_model(net, sample(4).inputs)
    assert sorted(name for name, _ in twin.named_parameters()) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert torch.allclose(twin(sample(4).inputs), net(sample(4).inputs))
