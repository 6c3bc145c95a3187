"""The server: who is let in, what is sent, and how often it draws."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from normgauge.core import store
from normgauge.core.errors import InputError
from normgauge.monitor.watching import scene as scenes
from normgauge.monitor.watching import server
from normgauge.monitor.watching.scene import Scene
from normgauge.monitor.watching.server import NEEDS, Studio, application, serve
from tests.core.store.made import header, step, written

pytest.importorskip("starlette", reason="the live page is normgauge[web]")
TOKEN, PORT = "a-secret", 8123


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(scenes, "LOOK", 0.0)
    monkeypatch.setattr(server, "SHARE", 0)


def ask(studio: Studio, target: str, host: str | None = f"127.0.0.1:{PORT}", method: str = "GET", **more: object):
    """Status, headers and body of one request, without a socket."""
    path, _, query = target.partition("?")
    headers = [] if host is None else [(b"host", host.encode())]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": headers, "http_version": "1.1", "scheme": "http", "root_path": "", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", PORT), **more,
    }  # fmt: skip
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict) -> None:
        sent.append(message)

    asyncio.run(application(studio, TOKEN, PORT)(scope, receive, send))
    if not sent:
        return None
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, body.decode()


@pytest.fixture
def studio(tmp_path):
    written(tmp_path / "runs" / "a", steps=5)
    return Studio(Scene([tmp_path / "runs"]))


def test_the_page_is_whole_and_may_ask_its_own_server_only(studio):
    status, headers, page = ask(studio, f"/?token={TOKEN}")
    assert status == 200 and "No alarm up to step 5." in page and 'id="live"' in page
    assert "connect-src 'self'; base-uri 'none'" in page and "default-src 'none'" in page
    assert headers["referrer-policy"] == "no-referrer" and headers["cache-control"] == "no-store"
    assert headers["content-security-policy"] == "frame-ancestors 'none'"
    assert "access-control-allow-origin" not in headers and TOKEN not in page


@pytest.mark.parametrize(
    "target", ["/", "/news", "/?token=", "/?token=a-secre", "/?token=a-secretx", "/?Token=a-secret"]
)
def test_without_the_token_nothing_is_told(studio, target):
    status, _, body = ask(studio, target)
    assert status == 403 and "token" in body and "blocks" not in body


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:99", "", None])
def test_another_name_for_this_machine_is_refused(studio, host):
    assert ask(studio, f"/?token={TOKEN}", host)[0] == 403


def test_other_names_methods_and_paths(studio):
    assert ask(studio, f"/?token={TOKEN}", f"LOCALHOST:{PORT}")[0] == 200
    assert ask(studio, f"/?token={TOKEN}", method="POST")[0] == 405
    assert ask(studio, f"/etc/passwd?token={TOKEN}")[0] == 404
    assert ask(studio, f"/?token={TOKEN}", type="websocket") is None


def test_news_are_the_sections_that_changed(studio, tmp_path):
    first = json.loads(ask(studio, f"/news?token={TOKEN}&version=")[2])
    assert set(first["pieces"]) == {f"piece-{name}" for name in ("verdict", "curves", "maps", "layers", "notes")}
    version = first["version"]
    again = json.loads(ask(studio, f"/news?token={TOKEN}&version={version}")[2])
    assert again["pieces"] == {} and again["version"] == version
    writer = store.resume(tmp_path / "runs" / "a", header())
    writer.append({**step(6), "loss": 77.0})
    later = json.loads(ask(studio, f"/news?token={TOKEN}&version={version}")[2])
    assert "rose from" in later["pieces"]["piece-verdict"] and later["version"] != version
    assert "up to step 6" in later["state"] and "Last written" in later["state"]
    written(tmp_path / "runs" / "b", steps=3, created="2026-02-01")
    both = json.loads(ask(studio, f"/news?token={TOKEN}&version={later['version']}")[2])
    assert both["subtitle"] == "2 runs side by side"
    stale = json.loads(ask(studio, f"/news?token={TOKEN}&version=0000-9")[2])
    assert len(stale["pieces"]) == 5  # the page of an earlier server


def test_a_page_opened_early_waits_and_is_filled(tmp_path):
    studio = Studio(Scene([tmp_path / "runs"]))
    _, _, page = ask(studio, f"/?token={TOKEN}")
    assert "there is none yet" in page and page.count("data-piece") == 5
    written(tmp_path / "runs" / "a", steps=2)
    assert "No alarm up to step 2" in studio.news("")["pieces"]["piece-verdict"]


def test_drawing_that_takes_long_is_done_less_often(studio, monkeypatch):
    monkeypatch.setattr(server, "SHARE", 10)
    clock = iter(x * 0.2 for x in range(100))
    monkeypatch.setattr(server.time, "monotonic", lambda: next(clock))
    assert studio.news("")["wait"] >= 2000  # two tenths of a second at least, so a drawing every two seconds at most
    drawn = []
    monkeypatch.setattr(server, "page_sections", lambda *_: drawn.append(1) or {})
    studio.scene.version += 1
    for _ in range(20):
        studio.news("")
        studio.scene.version += 1
    assert 1 <= len(drawn) <= 4


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_a_sentence_says_what_to_install(studio, monkeypatch, missing):
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, f"{missing}.applications" if missing == "starlette" else missing, None)
    with pytest.raises(InputError, match=r"pip install 'normgauge\[web\]'"):
        serve(studio.scene, 0, lambda _: None)
    assert "starlette and uvicorn" in NEEDS


@pytest.mark.parametrize("port", [70000, -1])
def test_a_port_that_is_none_is_refused(studio, port):
    with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1"):
        serve(studio.scene, port, lambda _: None)


def test_serving_tells_the_address_and_listens_on_this_machine_only(studio, monkeypatch):
    import uvicorn

    seen = []

    class Fake:
        def __init__(self, config: uvicorn.Config) -> None:
            seen.append(config)

        def run(self, sockets: list) -> None:
            seen.append(sockets[0].getsockname())

    monkeypatch.setattr(uvicorn, "Server", Fake)
    serve(studio.scene, 0, seen.append)
    address, config, (host, port) = seen[0], seen[1], seen[2]
    assert host == "127.0.0.1" and address.startswith(f"http://127.0.0.1:{port}/?token=") and len(address) > 50
    assert config.ws == "none" and not config.access_log
