"""Follow trainings from their run files: in the terminal, or as a page on this machine; torch is not loaded."""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from normgauge.cli.output import standard_output, write_json, write_text
from normgauge.monitor.watching.scene import Scene, read_runs
from normgauge.render.console import draw_blocks
from normgauge.render.markup import clean
from normgauge.render.runs_console import headline, run_blocks, run_snapshot
from normgauge.render.runs_words import is_over

HELP = "follow a training from its run file"
EXAMPLES = """\
examples:
  normgauge watch runs/a                  totals, layers and alarms until the run is over; Ctrl-C ends
  normgauge watch runs --web --open       a page with every run of the folder side by side
  normgauge watch runs/a --once           how it stands now
  normgauge watch runs/a --json -         the same for a script
"""
PAUSE = 1.0
WIDTH = 80  # columns where the output is no terminal
CLEAR = "\x1b[2J\x1b[H"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run file, its folder, or a folder of runs")
    parser.add_argument("--once", action="store_true", help="print how it stands and end")
    parser.add_argument("--json", metavar="FILE", help="write how it stands as JSON and end; - for standard output")
    parser.add_argument("--web", action="store_true", help="serve a live page on 127.0.0.1 (needs normgauge[web])")
    parser.add_argument("--port", type=int, default=0, help="of the page; a free one where it is not given")
    parser.add_argument("--open", action="store_true", help="open the page in a browser (with --web)")


def run(args: argparse.Namespace) -> int:
    """Show the runs once, as a page, or again and again."""
    if args.json is not None:
        items, _ = read_runs(args.runs)
        write_json({"schema": 1, "runs": [run_snapshot(item) for item in items]}, args.json)
    elif args.once:
        items, note = read_runs(args.runs)
        with standard_output() as stream:
            draw_blocks([*run_blocks(items), *filter(None, [note])], stream, None if stream.isatty() else WIDTH)
    elif args.web:
        _serve(Scene(args.runs), args.port, args.open)
    else:
        _follow(Scene(args.runs))
    return 0


def _serve(scene: Scene, port: int, browse: bool) -> None:
    from normgauge.monitor.watching.server import serve

    scene.refresh()  # a file that is no run is refused before a browser is opened

    def ready(address: str) -> None:
        write_text(f"{address}\n{clean(scene.waiting()) or 'Open this address.'} Ctrl-C ends.\n", "-")
        if browse:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(scene, port, ready)
    except KeyboardInterrupt:
        return


def _follow(scene: Scene, pause: Callable[[float], None] = time.sleep) -> None:
    """Draw again whenever something is new, until interrupted or all runs are over."""
    shown = ""
    terminal = sys.stdout.isatty()
    with contextlib.suppress(KeyboardInterrupt), _screen(terminal) as show:
        while True:
            scene.refresh()
            text = _text(scene, terminal)
            if text != shown:
                shown = text
                show(text)
            if scene.items() and all(map(is_over, scene.items())):
                break
            pause(PAUSE)
    if terminal:
        write_text(shown, "-")  # the screen is as before; the last view stays below it


@contextlib.contextmanager
def _screen(terminal: bool) -> Iterator[Callable[[str], None]]:
    """A way to show one text after another: over the last on a terminal, below it elsewhere."""
    if not terminal or find_spec("rich") is None:
        yield lambda text: write_text(CLEAR * terminal + text, "-")
        return
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:
        yield lambda text: live.update(Text.from_ansi(text), refresh=True)


class _Terminal(io.StringIO):
    """A text kept in memory that is drawn as on a terminal."""

    def isatty(self) -> bool:
        """Say that it is a terminal, so that bold and dim are drawn."""
        return True


def _text(scene: Scene, terminal: bool) -> str:
    items = scene.items()
    if not items:
        return clean(scene.waiting()) + "\n"
    size = shutil.get_terminal_size()
    stream = _Terminal() if terminal else io.StringIO()
    told = run_blocks(items, f"Following {headline(items)}. {scene.note()}".strip())
    draw_blocks(told, stream, size.columns if terminal else WIDTH)
    text = stream.getvalue()
    return "\n".join(text.splitlines()[: size.lines - 1]) + "\n" if terminal else text
