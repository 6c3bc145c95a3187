from __future__ import annotations

import torch
from torch import nn

from normgauge.certificates.case import LOOKED_AT, Case
from normgauge.certificates.facts.sample import DataSample

X, Y = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)), torch.arange(100) % 3
GROUPS = torch.tensor([0, 0, 0, 1, 2, 2])


def made(**options: object) -> Case:
    return Case(nn.Identity(), DataSample(X, Y), X, **options)  # type: ignore[arg-type]


def test_margins_are_the_lead_over_the_best_other_class() -> None:
    case = made(holdout=DataSample(X[:6], Y[:6]), holdout_logits=X[:6])
    assert case.m == 100 and case.classes == 3 and len(case.few()) == LOOKED_AT
    for logits, label, margin in zip(X.tolist(), Y.tolist(), case.margins.tolist(), strict=True):
        assert margin == logits[label] - max(v for k, v in enumerate(logits) if k != label)
    assert case.held is not None and torch.equal(case.held, case.margins[:6])
    assert made(holdout=DataSample(X[:6], None), holdout_logits=X[:6]).held is made().held is None


def test_unlabeled_inputs_are_read_before_those_of_the_hold_out() -> None:
    held, free = DataSample(X[:6], Y[:6]), DataSample(X[6:9], None)
    assert made().unseen is None
    assert made(holdout=held).unseen is held and made(holdout=held, unlabeled=free).unseen is free


def test_known_answers_of_the_hold_out_are_not_asked_for_again() -> None:
    held, known = DataSample(X[:6], Y[:6]), torch.zeros(6, 3)
    case = made(holdout=held, holdout_logits=known)
    assert case.answers(held) is known
    assert torch.equal(case.answers(DataSample(X[:4], None)), X[:4])


def test_one_sample_of_each_group_is_left_with_its_logits() -> None:
    case = made(holdout=DataSample(X[:6], Y[:6]), holdout_logits=torch.eye(6, 3), groups=GROUPS)
    one = case.single()
    assert one.groups is None and one.holdout is not None and one.holdout.inputs is not None
    places = [int((X[:6] == x).all(1).nonzero()) for x in one.holdout.inputs]
    assert sorted(GROUPS[places].tolist()) == [0, 1, 2]
    assert one.holdout_logits is not None and torch.equal(one.holdout_logits, torch.eye(6, 3)[places])
    assert made().single().holdout is None
