from __future__ import annotations

import math

import pytest

from normgauge.core.errors import ReadingError
from normgauge.core.spelled import from_log10, spell_number, to_log10, unspell_number


@pytest.mark.parametrize("value", [None, 0.0, -1.5, math.inf, -math.inf, 1e308])
def test_a_number_comes_back_from_its_spelling(value):
    assert unspell_number(spell_number(value)) == value
    assert from_log10(to_log10(value)) == (value if value is None else pytest.approx(value))


def test_infinities_are_words_logarithms_are_decimal_and_nan_is_refused():
    assert (spell_number(math.inf), to_log10(-math.inf)) == ("inf", "-inf")
    assert to_log10(math.log(1000)) == pytest.approx(3.0)
    with pytest.raises(ReadingError, match="a NaN cannot be stored"):
        spell_number(math.nan)
