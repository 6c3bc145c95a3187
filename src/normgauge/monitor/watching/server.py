"""The live page, served to this machine alone: 127.0.0.1, a token in the address, and only for its own name."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from normgauge.core.errors import InputError
from normgauge.monitor.watching.scene import Scene
from normgauge.render.runs import live_page, page_sections, subtitle
from normgauge.render.runs_console import headline

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

ADDRESS = "127.0.0.1"
NEEDS = "the live page needs starlette and uvicorn: pip install 'normgauge[web]'"
PATIENCE, SHARE = 10.0, 10  # seconds between two drawings at most; drawing takes a tenth of the time at most
STALE = 30.0  # seconds after which a drawing is made anew though nothing was written: that, too, is to be seen
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Studio:
    """Draws the scene on request, at most as often as the time for drawing allows.

    Attributes:
        scene: what is drawn.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._lock = threading.Lock()
        self._boot = secrets.token_hex(4)  # a page of an earlier server starts over
        self._drawn: dict[str, tuple[str, int]] = {}
        self._count = self._cost = 0.0
        self._scene_version = -1
        self._beside = self._state = ""
        self._next = self._stale = 0.0

    def page(self) -> str:
        """The whole page."""
        with self._lock:
            self._draw()
            shown = {key: content for key, (content, _) in self._drawn.items()}
            return live_page(shown, self._beside, self._version(), self._said())

    def news(self, version: str) -> dict[str, Any]:
        """What changed since a version of the page."""
        with self._lock:
            self._draw()
            boot, _, count = version.partition("-")
            known = int(count) if boot == self._boot and count.isdecimal() else -1
            fresh = {key: content for key, (content, since) in self._drawn.items() if since > known}
            wait = round(1000 * min(max(SHARE * self._cost, 1.0), PATIENCE))
            return {
                "version": self._version(),
                "pieces": fresh,
                "subtitle": self._beside,
                "state": self._said(),
                "wait": wait,
            }

    def _version(self) -> str:
        return f"{self._boot}-{self._count:.0f}"

    def _draw(self) -> None:
        begun = time.monotonic()
        if begun < self._next:
            return
        self.scene.refresh()
        if self.scene.version == self._scene_version and self._drawn and begun < self._stale:
            return
        self._stale = begun + STALE
        items = self.scene.items()
        self._scene_version = self.scene.version
        self._count += 1
        for key, content in page_sections(items, self.scene.waiting()).items():
            if self._drawn.get(key, ("", 0))[0] != content or key not in self._drawn:
                self._drawn[key] = (content, int(self._count))
        self._beside = subtitle(items)
        self._state = f"Following {headline(items)}." if items else self.scene.waiting()
        self._cost = time.monotonic() - begun
        self._next = begun + min(SHARE * self._cost, PATIENCE)

    def _said(self) -> str:
        age = self.scene.age()
        written = "" if age is None else f" Last written {age:.0f} s ago."
        return f"{self._state}{written} {self.scene.note()}".strip()


class Guard:
    """Refuses whoever does not know the token, and whoever reached this server by another name (DNS rebinding)."""

    def __init__(self, app: Any, token: str, hosts: frozenset[str]) -> None:
        self.app = app
        self._token = token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, or pass on."""
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return
        names = [value.decode("latin-1").lower() for key, value in scope["headers"] if key == b"host"]
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if len(names) != 1 or names[0] not in self._hosts:
            refused = PlainTextResponse("This server answers to 127.0.0.1 only.\n", 403, HEADERS)
        elif not hmac.compare_digest(given.encode(), self._token):
            refused = PlainTextResponse("The token is missing or wrong: open the whole address.\n", 403, HEADERS)
        else:
            await self.app(scope, receive, send)
            return
        await refused(scope, receive, send)


def application(studio: Studio, token: str, port: int) -> Starlette:
    """The web application with its two addresses: the page, and what is new.

    Raises:
        InputError: without the packages it needs.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.responses import HTMLResponse, JSONResponse
        from starlette.routing import Route
    except ImportError:
        raise InputError(NEEDS) from None

    # plain functions, so that drawing happens in a thread and the server goes on answering
    def page(request: Request) -> Response:
        return HTMLResponse(studio.page(), headers=HEADERS)

    def news(request: Request) -> Response:
        return JSONResponse(studio.news(request.query_params.get("version", "")), headers=HEADERS)

    hosts = frozenset({f"{ADDRESS}:{port}", f"localhost:{port}"})
    routes = [Route("/", page, methods=["GET"]), Route("/news", news, methods=["GET"])]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token, hosts=hosts)])


def serve(scene: Scene, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted.

    Args:
        scene: the runs.
        port: where; 0 takes a free one.
        ready: called with the address, token included, once it can be opened.

    Raises:
        InputError: when the port is taken, or a package is missing.
    """
    try:
        import uvicorn
    except ImportError:
        raise InputError(NEEDS) from None
    token = secrets.token_urlsafe(24)
    with _listening(port) as listener:
        port = listener.getsockname()[1]
        app = application(Studio(scene), token, port)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", ws="none", server_header=False
        )
        ready(f"http://{ADDRESS}:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listener])


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen(64)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(f"cannot listen on {ADDRESS}:{port}: {error}; give another --port, or none") from None
    return listener
