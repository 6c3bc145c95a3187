"""One thread for each test process, and every reading any test makes is checked as `normgauge verify` checks it."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: small matrices gain nothing from more
# some virtual machines announce AMX and end a process that uses it: products in bfloat16 do
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
if not os.path.exists("/dev/nvidia0"):  # Triton looks once: kernels are interpreted where there is no device
    os.environ.setdefault("TRITON_INTERPRET", "1")

import gc
import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.nn.modules import module as torch_modules

from normgauge.core import consistency
from normgauge.core.reading import Reading
from normgauge.instrument import known, measure
from normgauge.instrument.local.headline import Headline


def verified(reading: Reading) -> Reading:
    """The reading, once a stranger to the code that made it has followed its proof from the stored form alone."""
    found = consistency.check_consistency(json.loads(json.dumps(reading.to_json(), allow_nan=False)))
    findings = [said for said in found if not (reading.log_refuted is not None and said.startswith("refuted: "))]
    if findings:
        pytest.fail(f"a reading of {reading.model}, scope {reading.scope}, is not verified: {'; '.join(findings)}")
    return reading


@contextmanager
def balanced_alone() -> Iterator[None]:
    """Inside, a reading's upper bound is the balanced one, which its proof adds up to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known, "headline", lambda session, parts, best: Headline(best.log_upper))
        yield


@pytest.fixture(scope="session", autouse=True)
def every_reading_is_verified() -> Iterator[None]:
    """Wrap the two places readings come from; for the whole session, so that shared fixtures are covered too."""
    nested, made = measure.nested_lowers, known.make_reading

    def all_verified(results: list[Reading]) -> list[Reading]:
        return [verified(reading) for reading in nested(results)]

    def one_verified(*parts: Any) -> Reading:
        return verified(made(*parts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "nested_lowers", all_verified)
        patch.setattr(known, "make_reading", one_verified)
        yield


@pytest.fixture(autouse=True)
def a_monitor_left_open_ends_with_its_test() -> Iterator[None]:
    """A hook of the process lives as long as its monitor: torch would warn of it in another test's compiled model."""
    yield
    if torch_modules._has_any_global_hook():
        gc.collect()


@pytest.fixture(scope="module")
def brief_search() -> Iterator[None]:
    """For tests of what is made of its result: a search ends after sixteen moves; every part of it still runs."""
    search = importlib.import_module("normgauge.instrument.probe.search")
    with pytest.MonkeyPatch.context() as patch:
        for most in ("MOST_STEPS", "MOST_WIDE"):
            patch.setattr(search, most, 16)
        yield
