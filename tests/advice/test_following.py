"""A network that does not train, trains once the advice is followed: one network of benchmarks/following.py."""

from __future__ import annotations

import pytest

import normgauge as ng
from benchmarks.following import failing, trained_accuracy
from normgauge.advice import insert_norm
from normgauge.lab.zoo import digits

pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install normgauge[data]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "kind"),
    [("vanishing, He times 0.4", "vanishes"), ("exploding, He times 2.5", "explodes")],
    ids=["vanishing", "exploding"],
)
def test_following_the_advice_makes_it_train(start, kind):
    model = failing(start, seed=7)
    (remark,) = ng.advise(model, digits("train", limit=64).inputs, facts=False).problems
    assert remark.kind == kind and remark.fix is not None
    mended = insert_norm(model, remark.fix.places, remark.fix.kind)
    assert ng.advise(mended, digits("train", limit=64).inputs, facts=False).problems == ()
    assert trained_accuracy(model, 7, epochs=8) < 0.5
    assert trained_accuracy(mended, 7, epochs=8) > 0.8
