from __future__ import annotations

import math

import pytest

from normgauge.core.bound import Scope
from normgauge.core.errors import InputError


@pytest.mark.parametrize(
    ("text", "kind", "radius"),
    [("global", "global", math.inf), ("point", "point", 0.0), ("ball:0.1", "ball", 0.1), ("ball:1e-4", "ball", 1e-4)],
)
def test_a_scope_is_read_and_written(text, kind, radius):
    scope = Scope.parse(text)
    assert (scope.kind, scope.radius) == (kind, radius)
    assert Scope.parse(str(scope)) == scope
    assert Scope.parse(scope) is scope


@pytest.mark.parametrize("text", ["", "ball", "ball:", "ball:0", "ball:-1", "ball:inf", "ball:nan", "ball:x", "Global"])
def test_any_other_scope_is_refused_in_words(text):
    with pytest.raises(InputError, match=r"expected point .the samples., ball:RADIUS"):
        Scope.parse(text)
