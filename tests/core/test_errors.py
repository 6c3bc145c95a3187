from __future__ import annotations

from normgauge.core import errors


def test_every_error_has_one_root_and_a_sentence_of_its_own():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) > 5 and all(issubclass(kind, errors.NormgaugeError) and kind.__doc__ for kind in kinds)


def test_operations_without_a_rule_are_all_named_at_once():
    error = errors.UnknownOpError([("a.fft", "torch.fft.fft"), ("b", "torch.roll")])
    assert str(error).startswith("2 operation(s) have no rule (a.fft: torch.fft.fft; b: torch.roll). Give each a rule")
    assert error.unknown == [("a.fft", "torch.fft.fft"), ("b", "torch.roll")]
