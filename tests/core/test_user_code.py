"""Objects named as Python code: found once, called later, mistakes told apart."""

from __future__ import annotations

import sys

import pytest

from normgauge.core.errors import LoadError
from normgauge.core.user_code import find_object, locate_object, one_line

CODE = """\
import counter
counter.times += 1
NUMBER = 3
def make(): return counter.times
def leaves(): raise SystemExit("two\\nlines")
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "counter.py").write_text("times = 0\n")
    (tmp_path / "code.py").write_text(CODE)
    yield tmp_path / "code.py"
    sys.modules.pop("counter", None)


def test_a_file_runs_once_and_a_function_when_it_is_called(code):
    make = find_object(f"{code}:make", "expected")
    assert locate_object(f"{code}:NUMBER", "expected") == 3 and make() == make() == 1
    assert find_object(f"{code}:NUMBER", "expected")() == 3
    function = locate_object(f"{code}:make", "expected")
    assert find_object(f"{code}:make", "expected", ready=type(function))() is function


def test_what_the_code_raises_is_told_on_one_line(code):
    with pytest.raises(LoadError, match=r"code.py:leaves raised SystemExit: two lines$"):
        find_object(f"{code}:leaves", "expected")()
    with pytest.raises(LoadError, match=r"has no 'none'; its functions: make, leaves$"):
        locate_object(f"{code}:none", "expected")
    assert len(one_line(ValueError("x" * 999))) == 400


@pytest.mark.parametrize("spec", ["", "name", ":name", "file.py:", "file.py"])
def test_what_is_no_place_and_name_gets_the_sentence_given(spec):
    with pytest.raises(LoadError, match=r"^this was expected$"):
        locate_object(spec, "this was expected")


def test_a_file_that_is_not_there_names_the_nearest_beside_it(code):
    with pytest.raises(LoadError, match=r"got no such file; did you mean .*code\.py\?$"):
        find_object(f"{code.with_name('cod.py')}:make", "a model")
