"""Digests of weights: every bit, name and type counts."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

import normgauge as ng
from normgauge.core import consistency
from normgauge.instrument.fingerprint import digest_beside, weights_digest
from normgauge.render.verdict import trouble_sentences

pytestmark = pytest.mark.usefixtures("brief_search")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here to make a digest beside")


# digests
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2)).eval()


def test_the_digest_of_the_weights_sees_every_bit_name_and_type():
    model = net()
    first = weights_digest(model)
    assert first.startswith("sha256:") and len(first) == 71 and weights_digest(copy.deepcopy(model)) == first
    assert ng.gauge(model, torch.randn(3, 4), scope="global").weights == first == weights_digest(model)
    assert weights_digest(copy.deepcopy(model).train()) == first  # a mode is no weight
    others = [copy.deepcopy(model) for _ in range(4)]
    others[0][3].bias.data[1] = torch.nextafter(others[0][3].bias.data[1], torch.tensor(9.0))
    others[1][1].running_mean[2] += 1e-3
    others[2].double()
    others[3] = nn.Sequential(*others[3], nn.Identity()).append(nn.Linear(1, 1))
    named = nn.ModuleDict({str(10 + i): layer for i, layer in enumerate(copy.deepcopy(model))})
    assert len({first, *(weights_digest(other) for other in (*others, named))}) == 6


def test_the_digest_takes_tensors_of_any_type_and_says_where_there_are_no_bytes():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i, dtype in enumerate((torch.bfloat16, torch.complex64, torch.bool, torch.int64, torch.float8_e5m2)):
                self.register_buffer(f"b{i}", torch.ones(2, 3).to(dtype), persistent=False)
            self.register_buffer("scalar", torch.tensor(2.0))
            self.register_buffer("empty", torch.empty(0, 3))
            self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)
            self.register_buffer("conjugate", torch.ones(2, dtype=torch.complex64).conj())

    assert len(weights_digest(Odd())) == 71
    assert weights_digest(nn.Linear(2, 2, device="meta")) == ""


def test_a_reading_tells_the_samples_it_was_made_on_in_any_precision():
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    made = [ng.gauge(net().to(one.dtype), one, search=False).batch for one in (x, x.double(), x[:2], x + 1)]
    assert made[0].startswith("sha256:") and made[0] == made[1] and len(set(made)) == 3
    assert ng.Reading.from_json(ng.gauge(net(), x, search=False).to_json()).batch == made[0]


def test_an_edited_file_is_known_as_edited_and_stays_so(tmp_path):
    reading = ng.gauge(net(), torch.randn(3, 4), scope="global")
    reading.save(tmp_path / "a.json")
    assert not ng.Reading.load(tmp_path / "a.json").edited
    data = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "b.json").write_text(json.dumps({**data, "model": "Better"}))
    edited = ng.Reading.load(tmp_path / "b.json")
    assert edited.edited and any(
        "was edited after it was written" in sentence for sentence in trouble_sentences(edited)
    )
    edited.save(tmp_path / "c.json")
    again = json.loads((tmp_path / "c.json").read_text())
    assert any(said.startswith("edited: ") for said in consistency.check_consistency(again))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_a_digest_made_beside_other_work_is_that_of_the_weights_before_it(device):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    with digest_beside(model) as digest:
        own, model[0].weight = model[0].weight, nn.Parameter(torch.zeros(4, 3, device=device))
        model[0].weight = own
        assert digest() == digest() == weights_digest(model)
