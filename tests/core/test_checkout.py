from __future__ import annotations

import pytest

from normgauge.core import checkout
from normgauge.core.errors import InputError


def test_the_repository_is_found_from_the_file_and_its_absence_said(tmp_path, monkeypatch):
    assert (checkout.checkout() / "experiments" / "__init__.py").is_file()
    monkeypatch.setattr(checkout, "__file__", str(tmp_path / "lib" / "normgauge" / "core" / "checkout.py"))
    with pytest.raises(InputError, match=r"in a checkout of the repository: pip install -e \."):
        checkout.checkout()
