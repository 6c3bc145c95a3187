from normgauge.certificates.conditions import CELLS, TRAIN, joined_conditions


def test_each_condition_is_named_once_in_the_order_given_and_empty_ones_are_left_out() -> None:
    assert joined_conditions(TRAIN, "", CELLS, TRAIN) == f"{TRAIN}; {CELLS}"
    assert joined_conditions("", "") == ""
