"""The Ray engine: once with a real, small Ray in a process of its own, and its rules with a stand-in."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from normgauge.core.errors import InputError
from normgauge.lab.sweep import on_ray
from normgauge.lab.sweep.attempt import Ended, Limits
from normgauge.lab.sweep.files import read_result
from normgauge.lab.sweep.on_ray import OnRay
from tests.lab.sweep.made import begun

DRIVER = """
import sys
from pathlib import Path
from normgauge.lab.sweep.attempt import Limits
from normgauge.lab.sweep.on_ray import OnRay

with OnRay(1, Limits(1)) as engine:
    engine.start(Path(sys.argv[1]))
    while not (ended := engine.ended()):
        pass
    print(ended[0].place, ended[0].error, engine.free)
"""


@pytest.mark.ray
@pytest.mark.slow
def test_a_trial_runs_on_ray(tmp_path):
    pytest.importorskip("ray", reason="needs Ray: pip install 'normgauge[ray]'")
    (place,) = begun(tmp_path, '"well"')
    done = subprocess.run([sys.executable, "-c", DRIVER, str(place)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(place.resolve()), "1"], done.stdout
    result = read_result(place)
    assert result is not None and result.values["test_accuracy"] is not None


class StandIn:
    """As much of Ray as the engine uses; tasks run when they are waited for."""

    def __init__(self, running: bool = False) -> None:
        self.running, self.asked, self.cancelled = running, {}, []
        self.exceptions = SimpleNamespace(RayError=ConnectionError)
        self.waiting: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **asked: Any) -> None:
        self.running, self.asked = True, asked

    def shutdown(self) -> None:
        self.running = False

    def remote(self, **options: Any) -> Any:
        self.options = options

        def decorated(function: Any) -> Any:
            def begin(*arguments: Any) -> str:
                name = f"task {len(self.waiting)}"
                self.waiting[name] = lambda: function(*arguments)
                return name

            return SimpleNamespace(remote=begin)

        return decorated

    def wait(self, references: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        return references[:num_returns], references[num_returns:]

    def get(self, reference: str) -> Any:
        return self.waiting[reference]()

    def cancel(self, reference: str, force: bool) -> None:
        self.cancelled.append(reference)


@pytest.fixture
def ray(monkeypatch) -> StandIn:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    return stand_in


def test_attempts_are_tasks_that_ray_does_not_repeat(ray, tmp_path, monkeypatch):
    asked = []

    def pretend(place: Path, limits: Limits) -> Ended:
        asked.append((place, limits))
        if len(asked) == 3:
            raise ConnectionError("the worker\n died")
        return Ended(place, 1.5, "" if len(asked) == 1 else "why")

    monkeypatch.setattr(on_ray, "run_attempt", pretend)
    with OnRay(2, Limits(3, 9.0), gpus=1.0) as engine:
        assert ray.asked["num_cpus"] == 6 and ray.asked["include_dashboard"] is False
        assert ray.options == {"max_retries": 0, "num_cpus": 3, "num_gpus": 1.0}
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        assert engine.ended() == [] and engine.free == 2
        engine.start(tmp_path)
        engine.start(tmp_path)
        assert engine.free == 0
        assert engine.ended() == [Ended(tmp_path, 1.5)] and engine.free == 1
        assert engine.ended() == [Ended(tmp_path, 1.5, "why")]
        engine.start(tmp_path)
        assert engine.ended() == [Ended(tmp_path, 0.0, "Ray: the worker died")]
        assert asked[0] == (tmp_path, Limits(3, 9.0))
        engine.start(tmp_path / "nowhere")
        (ended,) = engine.ended()
        assert "must be on a disk that all share" in ended.error
        engine.start(tmp_path)
    assert len(ray.cancelled) == 1 and not ray.running


def test_a_ray_that_runs_already_is_used_and_left_running(ray):
    ray.running = True
    with OnRay(1, Limits(1)):
        assert ray.asked == {}
    assert ray.running


def test_what_a_signal_does_is_not_for_ray_to_say(ray, monkeypatch):
    """Ray ends its driver with a dump and exit code 1 on SIGTERM; a sweep has a line to say."""
    before, begin = signal.getsignal(signal.SIGTERM), ray.init

    def init(**asked: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        begin(**asked)

    monkeypatch.setattr(ray, "init", init)
    try:
        with OnRay(1, Limits(1)):
            assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://localhost:{}", "auto"])
def test_a_cluster_is_joined_by_its_address(ray, form):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = form.format(server.getsockname()[1])
        with OnRay(1, Limits(1), address):
            assert ray.asked["address"] == address and "num_cpus" not in ray.asked


@pytest.mark.parametrize("host", ["127.0.0.1", "ray://127.0.0.1", "no-such-host.invalid"])
def test_an_address_where_nothing_listens_is_refused_at_once(ray, host):
    """Ray itself tries for two minutes, and then tells of its own files."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(InputError, match=f"no Ray cluster at {host}:{port}: .*; give the address that `ray start"):
        OnRay(1, Limits(1), f"{host}:{port}")
    assert ray.asked == {}


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'normgauge\[ray\]'"):
        OnRay(1, Limits(1))


@pytest.mark.parametrize(("address", "words"), [("auto", "no Ray cluster at auto"), (None, "Ray did not start")])
def test_a_cluster_that_is_not_there(ray, monkeypatch, address, words):
    def nobody(**_: object) -> None:
        raise ConnectionError("nothing\nanswers")

    monkeypatch.setattr(ray, "init", nobody)
    with pytest.raises(InputError, match=f"{words}.*: nothing answers"):
        OnRay(1, Limits(1), address)
