from __future__ import annotations

import pytest
import torch
from torch import nn

from normgauge.certificates.case import Case
from normgauge.certificates.facts.sample import DataSample
from normgauge.certificates.gibbs.posterior import Gaussian
from normgauge.certificates.gibbs.risk import Effort, drawn_error
from normgauge.certificates.gibbs.space import weight_space
from normgauge.core.errors import InputError
from tests.certificates.rows.made import case_of, points, trained

TRAIN = points(2000, 0)


@pytest.fixture(scope="module")
def bn_case() -> Case:
    return case_of(trained(TRAIN), TRAIN, epochs=2)


def test_without_noise_the_drawn_error_is_the_training_error(bn_case: Case) -> None:
    where = weight_space(bn_case.model, TRAIN[0][:1])
    still = Gaussian(where.mean, {name: torch.zeros(()) for name in where.mean})
    truth = float((bn_case.logits.argmax(1) != TRAIN[1]).float().mean())
    assert drawn_error(where, still, bn_case.train, 2000) == pytest.approx(truth, abs=0.005)
    with pytest.raises(InputError, match="labels"):
        drawn_error(where, still, DataSample.of(TRAIN[0], "u", labelled=False), 1)


def test_draws_and_samples_go_down_with_the_cost_of_a_pass() -> None:
    filters = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(40)), nn.Flatten(), nn.Linear(12_288, 2))
    networks = {
        "small": (nn.Sequential(nn.Linear(10, 10)), torch.zeros(1, 10)),
        "wide": (nn.Sequential(nn.Linear(1000, 1000, bias=False)), torch.zeros(1, 1000)),
        "filters": (filters, torch.zeros(1, 3, 64, 64)),
    }
    found = {name: Effort.of(weight_space(net, like, settle=False), like) for name, (net, like) in networks.items()}
    assert found == {"small": Effort(4000, 64, 128), "wide": Effort(304, 64, 128), "filters": Effort(458, 8, 30)}
