import pytest

from normgauge.certificates import spaces
from normgauge.certificates.gibbs import risk
from normgauge.certificates.rows import gibbs


@pytest.fixture(autouse=True)
def few_radii(monkeypatch: pytest.MonkeyPatch) -> None:
    """The curve of local constants has a test of its own; elsewhere two radii do."""
    monkeypatch.setattr(spaces, "RADII", (0.05, 0.5))


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Gibbs rows have tests of their own; elsewhere they need not be tight."""
    monkeypatch.setattr(risk, "DRAWS", (20, 40))
    monkeypatch.setattr(gibbs, "PILOT", 2)
