"""A search of a few moves, for tests of what is made of its result."""

from __future__ import annotations

import importlib

import pytest


@pytest.fixture(scope="module")
def brief_search():
    """Searches end after sixteen moves; every part of them still runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.import_module("normgauge.instrument.probe.search"), "MOST_STEPS", 16)
        yield
