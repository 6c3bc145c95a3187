"""What lies in a trial's folder: read back as written, and damaged files as if they were not there."""

from __future__ import annotations

import math
import os

import pytest

from normgauge.core.errors import InputError
from normgauge.lab.sweep.files import (
    LOCK,
    Result,
    exclusive_lock,
    read_result,
    write_result,
)


def test_infinities_are_stored(tmp_path):
    write_result(tmp_path, Result({"a": math.inf, "b": -math.inf, "c": None}))
    stored = read_result(tmp_path)
    assert stored is not None and stored.values == {"a": math.inf, "b": -math.inf, "c": None}


@pytest.mark.skipif(os.name == "nt", reason="no such locks on Windows")
def test_a_lock_is_refused_or_waited_for(tmp_path):
    held, again = (exclusive_lock(tmp_path / LOCK, "busy") for _ in range(2))
    with held, pytest.raises(InputError, match="busy"), again:
        pass
    with exclusive_lock(tmp_path / LOCK):
        pass
