"""Rules made wrong by one per cent are caught, by the contract test or by the fuzz."""

from __future__ import annotations

import pytest

from normgauge.instrument.testing import check_rule
from tests.cases import CASES
from tests.fuzz.mutants import mutated
from tests.fuzz.run import fuzz_one

ATTAINED = {case.rule: case for case in reversed(CASES) if case.attained}
BY_FUZZ = ("affine.linear", "activation.activation", "combine.multiply")


@pytest.mark.parametrize("rule", sorted(ATTAINED))
def test_the_contract_test_notices_one_per_cent(rule):
    case = ATTAINED[rule]
    with pytest.raises(AssertionError, match=r"expected|above upper"):
        check_rule(case.make, case.inputs, rules=mutated(rule), scopes=case.attained, mode=case.mode)


def test_enough_rules_are_attained():
    wanted = {
        "affine.linear", "conv.convolution", "norm_batch.batch_norm", "norm_layer.layer_norm", "norm_layer.group_norm",
        "norm_layer.rms_norm", "activation.activation", "combine.add", "pooling.max_pool", "softmax.softmax",
    }  # fmt: skip
    assert wanted <= set(ATTAINED)


@pytest.mark.parametrize("rule", BY_FUZZ)
def test_the_fuzz_notices_one_per_cent(rule):
    registry = mutated(rule)
    for seed in range(200):
        if fuzz_one(seed, registry, balance=False, effort=0).broken:
            return
    pytest.fail(f"200 random networks did not notice {rule} times 0.99")


def test_an_unknown_rule_is_named():
    with pytest.raises(SystemExit, match="expected one of"):
        mutated("affine.lineal")
