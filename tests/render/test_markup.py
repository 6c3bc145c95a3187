"""One builder escapes everything, and no name steers a terminal, a page or a file."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from normgauge.cli import main
from normgauge.core import store
from normgauge.render.certificate_page import certificate_html as certificate_page
from normgauge.render.console import as_text, draw_blocks, reading_blocks
from normgauge.render.explain import explain
from normgauge.render.markup import STEERING, Markup, clean, markup, sentence_markup, tag
from normgauge.render.page import report
from normgauge.render.runs import runs_html as runs_page
from normgauge.render.runs_console import run_blocks
from normgauge.render.runs_data import labelled_runs
from normgauge.render.theory import theory_blocks
from normgauge.render.theory_page import theory_page
from tests.core.store.made import header, step
from tests.made_certificates import hostile as hostile_certificate
from tests.made_claims import hostile as hostile_claims
from tests.render.networks import hostile, residual

STEER = "a\x1b]0;OWNED\x07\x1b[2J\x1b[8m\x1b]8;;http://evil\x1b\\\x9b31m\x00\r\u202e rtl\u2066\u2028\ud800b"
SPELLED = "a\\u001b]0;OWNED\\u0007"


def harmless(text: str) -> bool:
    text.encode()  # no half of a surrogate pair
    return STEERING.search(text) is None


def test_what_is_put_into_an_element_is_escaped_once():
    inner = tag("b", "<i> & 'it'")
    assert inner == "<b>&lt;i&gt; &amp; &#x27;it&#x27;</b>"
    assert tag("p", inner, ["x < y", (None, inner)]) == f"<p>{inner}x &lt; y{inner}</p>"
    assert tag("a", "t", href='"><script>', data_row=3, open=True, hidden=False, id=None) == (
        '<a href="&quot;&gt;&lt;script&gt;" data-row="3" open>t</a>'
    )
    assert tag("line", x1=1.25) == '<line x1="1.2"/>' and tag("td") == "<td></td>"


def test_only_the_builder_makes_markup_and_joining_it_with_text_escapes():
    assert isinstance(markup("a", tag("br")), Markup) and not isinstance(tag("b", "x") + "<i>", Markup)
    assert markup(tag("b", "x") + "<i>") == "&lt;b&gt;x&lt;/b&gt;&lt;i&gt;"  # rather twice than not at all


def test_powers_are_raised_in_words_and_elements_left_alone():
    assert sentence_markup("10^-3 <") == "10<sup>-3</sup> &lt;" and sentence_markup(tag("b", "10^3")) == "<b>10^3</b>"


@pytest.mark.parametrize("character", [chr(c) for c in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0xD800)])
def test_control_characters_are_spelled_as_json_spells_them(character):
    shown = clean(f"a{character}b")
    assert harmless(shown) and json.loads(f'"{shown}"') == f"a{character}b"


def test_text_of_any_language_stays():
    for text in ("σ ≤ √ε\n\ttab", "שלום", "नमस्ते", "👩‍💻", "naïve"):
        assert clean(text) == text


@pytest.mark.parametrize("rich", [True, False], ids=["rich", "plain"])
def test_no_name_steers_a_terminal(tmp_path, monkeypatch, rich):
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    writer = store.create(tmp_path, header())
    writer.append({**step(1), "totals": {}})
    writer.append({"kind": "alarm", "step": 1, "alarm": STEER, "layer": STEER, "sentence": STEER})
    writer.append({"kind": "note", "step": 1, "sentence": STEER})
    run = labelled_runs([store.read(tmp_path)])
    ledger = hostile_claims()
    for shown in (reading_blocks([hostile(STEER)], every=True), run_blocks([replace(run[0], label=STEER)])):
        assert harmless(as_text(shown)) and "OWNED" in as_text(shown)
        stream = io.StringIO()
        draw_blocks(shown, stream, 60)
        assert harmless(stream.getvalue())
    assert harmless(as_text(theory_blocks(ledger)))
    reading = hostile(STEER)
    assert harmless(str(reading)) and len(reading.layers) == 5
    assert all(harmless(explain(reading, record.name)) for record in reading.layers)


def test_no_name_steers_a_page(tmp_path):
    page = report(hostile(STEER), tmp_path / "page.html").read_text(encoding="utf-8")
    assert harmless(page) and SPELLED in page
    assert harmless(hostile(STEER)._repr_html_())
    writer = store.create(tmp_path / "run", header())
    writer.append({**step(1), "totals": {}})
    writer.append({"kind": "alarm", "step": 1, "alarm": STEER, "layer": STEER, "sentence": STEER})
    assert harmless(runs_page(labelled_runs([store.read(tmp_path / "run")]), STEER))
    assert harmless(certificate_page(replace(hostile_certificate(), model=STEER, notes=(STEER,), warnings=(STEER,))))
    assert harmless(theory_page(hostile_claims(), STEER))


def test_no_command_passes_a_name_to_the_terminal(tmp_path, capsys):
    layers = tuple(replace(record, name=f"{STEER}{i}") for i, record in enumerate(residual().layers))
    reading = replace(residual(), layers=layers, proof=None, model=STEER)
    saved = tmp_path / "reading.json"
    saved.write_text(json.dumps(reading.to_json()), encoding="utf-8")
    page = tmp_path / "page.html"
    for arguments in (
        ["explain", str(saved)],
        ["explain", str(saved), "none"],
        ["explain", str(saved), f"{STEER}0"],
        ["explain", str(saved), f"{STEER}0", "--json", "-"],
        ["diff", str(saved), str(saved)],
        ["verify", str(saved)],
        ["report", str(saved), "--html", str(page)],
        ["report", str(saved), "--html", str(page), "--json", "-"],
    ):
        assert main(arguments) in (0, 1)
        shown = "".join(capsys.readouterr())
        assert harmless(shown) and shown, arguments
    assert json.loads(shown)["readings"][0]["model"] == STEER  # the same data, spelled
    assert re.search("OWNED", page.read_text(encoding="utf-8"))


def test_nothing_else_escapes():
    root = Path(__file__).parents[2]
    files = [path for folder in ("src", "experiments") for path in (root / folder).rglob("*.py")]
    found = {path.name for path in files if re.search(r"html import escape|html\.escape", path.read_text("utf-8"))}
    assert found == {"markup.py"}
