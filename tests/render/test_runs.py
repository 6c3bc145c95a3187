"""The page of runs: what it says first, what it draws, how large it is, and that nothing in it is taken for HTML."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from pathlib import Path

import pytest

from normgauge.core import store
from normgauge.core.errors import InputError
from normgauge.core.store.steps import packed_step
from normgauge.render.document import write_file
from normgauge.render.runs import page_sections, runs_html
from normgauge.render.runs_data import labelled_runs
from normgauge.render.runs_words import healthy, run_sentences
from tests.core.store.made import alarm, header, step, written


def shown(*paths: Path) -> str:
    return runs_html(labelled_runs([store.read(path) for path in paths]), "runs")


def told(path: Path) -> str:
    return " ".join(run_sentences(labelled_runs([store.read(path)])[0]))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        written(folder / "a", steps=200, alarms=(40, 41, 90)),
        written(folder / "b", steps=80, seed=2, end=False),
    ]


def test_the_first_words_are_alarm_step_and_layer(runs):
    page = shown(runs[0])
    first = re.search(r'<p class="verdict">(.*?)</p>', page)[1]
    assert first.startswith('<span class="badge bad">look here</span> Sigma collapse in blocks.1.norm, since step 40: ')
    assert page.index("<p class=") < page.index("<svg")
    row = "<td>blocks.1.norm</td><td>sigma_collapse</td>"
    assert row in page and page.count(row) == 1  # of one kind at one layer, one row
    assert '<td class="n">3</td><td class="n">90</td>' in page


def test_a_quiet_run_is_said_to_be_quiet(runs):
    said = told(runs[1])
    assert "No alarm up to step 80." in said and "The loss fell from" in said
    assert "on the folded product stays near 10^1.28 (estimated)." in said
    assert "After step 1 the folded product was 10^1.20, after step 200 10^1.33 (estimated)." in told(runs[0])
    assert said.endswith("it ended without close(), by an error perhaps, or was killed.")
    assert '<span class="badge good">no alarm</span>' in shown(runs[1])


@pytest.mark.parametrize(("after", "far"), [(4.2, True), (2.7, False), (2.4, False)])
def test_a_run_without_an_alarm_whose_loss_lost_what_it_gained_is_not_said_to_be_well(tmp_path, after, far):
    writer = store.create(tmp_path, header())
    for number in [*range(1, 150, 10), *range(160, 300, 10)]:
        loss = 4.5 - 0.013 * number if number < 150 else after
        writer.append({**step(number), "loss": loss, "loss_mean": loss, "loss_max": loss})
    writer.close()
    item = labelled_runs([store.read(tmp_path)])[0]
    assert healthy(item) != far
    said = told(tmp_path)
    assert ("But the loss is far above its lowest since step 142: its mean is 4.2 in steps" in said) == far
    assert ("no step between 141 and 142" in said) is False and ("The loss fell" in said) != far


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_said_and_drawn(tmp_path, bad):
    writer = store.create(tmp_path, header())
    for number in range(1, 20):
        writer.append({**step(number), "loss": bad if number > 12 else 1.0})
    writer.close()
    item = labelled_runs([store.read(tmp_path)])[0]
    assert not healthy(item) and "The loss is not finite at step 13." in run_sentences(item)
    page = shown(tmp_path)
    assert "look here" in page and ">not finite</text>" in page


def test_words_for_a_run_without_steps_loss_or_change(tmp_path):
    assert "a header and no step yet" in told(written(tmp_path / "a", steps=0))
    assert "The run has a header" in shown(tmp_path / "a")
    writer = store.create(tmp_path / "b", header())
    for number in (1, 2):
        writer.append({**step(1), "step": number, "loss": None, "totals": {"log10_folded": 3.0}})
    assert "No loss was given. From step 1 on the folded product stays near 10^3.00 (estimated)." in told(writer.path)
    writer = store.create(tmp_path / "c", header())
    writer.append({**step(1), "loss": 0.5, "totals": {}})
    writer.append(alarm(1, ""))
    for layer in "wxyz":
        writer.append(alarm(1, layer))
    assert "1: σ of  fell" in told(writer.path) and "Later 4 more incidents, in w, x, y and others." in told(
        writer.path
    )
    assert "The loss is 0.5 at step 1." in told(writer.path)
    shown(writer.path)


def test_alarms_are_marked_in_every_plot_and_map(runs):
    page = shown(runs[0])
    drawn = [figure for figure in page.split("<figure")[1:] if "<svg" in figure]
    assert len(drawn) == 4 + 5
    assert all(figure.count('class="alarm"') >= 2 for figure in drawn)  # wide and narrow


def test_evidence_and_gauge_stand_at_each_number(runs):
    page = unescape(shown(runs[0]))
    for words in (
        "Loss (observed; of several steps the mean)",
        "Product of folded gains (estimated); free of the scale in front of normalizers",
        "P_w (proved) and Π1/σ (observed): depend on the gauge", "norm, lower end (proved)",
        "Gradient norm, behind any clip (observed)",
        "norm <small>proved</small>", "folded <small>estimated</small>", "σ rms <small>observed</small>",
    ):  # fmt: skip
        assert words in page


def test_the_folded_product_is_not_said_to_be_free_of_the_gauge(runs):
    page = unescape(shown(runs[0]))
    assert "capacity" not in page and "not depend on the gauge" not in page
    for words in ("rescaling across a ReLU, or of γ against the next layer, moves it", "not a bound through skips"):
        assert words in page


def test_the_gradients_evidence_is_that_of_its_total(tmp_path):
    top = header()
    top["totals"]["gradient"]["evidence"] = "estimated"
    writer = store.create(tmp_path, top)
    writer.append(step(1))
    assert "Gradient norm, behind any clip (estimated)" in shown(tmp_path)


def test_both_ends_of_norms_are_said(tmp_path):
    writer = store.create(tmp_path, header(0))
    writer.append({**step(1), "totals": {"log10_P_w_lower": 0.3859, "log10_P_w": 1.247},
                   "columns": {"norm_lower": [2.4349], "norm_upper": [17.61]}})  # fmt: skip
    assert "The log10 of P_w is 0.38 to 1.25 (proved; depends on the gauge)." in told(tmp_path)
    assert '<td class="n">2.43 to 17.7</td>' in shown(tmp_path)


def test_what_a_run_does_not_have_is_not_in_the_legend(tmp_path, runs):
    writer = store.create(tmp_path / "c", header(0))
    writer.append({**step(1), "totals": {"log10_P_w_lower": 1.0, "log10_P_w": 1.1}})
    page = unescape(shown(writer.path))
    assert "P_w (proved): depends on the gauge<" in page and ">Π1/σ (rms)" not in page
    several = unescape(shown(writer.path, runs[1]))
    assert ">Π1/σ (rms); band" in several
    captions = {f.split("</figcaption>")[0].split(">")[-1]: f for f in several.split("<figure")[1:]}
    assert (
        ">c</text>" in captions["Loss (observed; of several steps the mean)"]
        and ">c</text>" not in captions["Gradient norm, behind any clip (observed)"]
    )


def test_layers_that_are_numbers_are_called_layers(tmp_path):
    top = header(1)
    for i, layer in enumerate(top["layers"]):
        layer["name"] = str(i)
    writer = store.create(tmp_path, top)
    writer.append(step(1, 3))
    writer.append(alarm(1, "1"))
    writer.append(alarm(1, "2"))
    assert "Sigma collapse in layer 1, since step 1: " in told(
        tmp_path
    ) and "Later 1 more incident, in layer 2." in told(tmp_path)
    assert "<td>layer 1</td><td>sigma_collapse</td>" in shown(tmp_path)


def test_several_runs_share_plots_and_have_a_legend(runs):
    page = shown(*runs)
    assert page.count('<figure class="plot"') == 4
    for colour in ("c0", "c1"):
        assert page.count(f'<polyline class="curve {colour}') >= 8
        assert f'<span class="swatch {colour}"' in page
    assert page.count('<figure class="heat"') == 10
    assert ">2 runs side by side<" in page


def test_enclosures_are_bands_that_enclose_their_curve(runs):
    figures = re.findall(r'data-curves="(.*?)"', shown(runs[0]))
    curves = [curve for text in figures for curve in json.loads(unescape(text))]
    banded = [curve for curve in curves if "ends" in curve]
    assert [curve["label"] for curve in banded] == ["a P_w", "a Π1/σ"]
    for curve in banded:
        assert all(low <= value <= high for value, (low, high) in zip(curve["values"], curve["ends"], strict=True))
    assert banded[0]["values"] == [low for low, _ in banded[0]["ends"]]  # the upper end has slack
    assert shown(runs[0]).count('<polygon class="band c0"') == 4


def test_names_are_text_and_never_html(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>\"'&"
    top = header(model={"name": evil}, device=evil)
    for layer in top["layers"]:
        layer["name"] = layer["name"] + evil
        layer["type"] = evil
    writer = store.create(tmp_path / "<b>x", top)
    writer.append(step(1))
    writer.append(step(2))
    writer.append(alarm(2, top["layers"][0]["name"], sentence=evil, alarm=evil))
    writer.append({"kind": "note", "step": 2, "sentence": evil})
    writer.append({"kind": evil})
    writer.close()
    page = shown(writer.path)
    assert "<img src=x" not in page and "<b>x" not in page and page.count("</script>") == 1


def test_the_page_asks_for_nothing_and_its_policy_says_so(runs):
    page = shown(*runs)
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    assert policy.startswith("default-src 'none'; img-src data:;") and "connect-src" not in policy
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_notes_and_problems_are_listed(tmp_path):
    path = written(tmp_path / "a", steps=5, end=False)
    writer = store.resume(path, header())
    writer.append({"kind": "note", "step": 5, "sentence": "conv1 has no enclosure"})
    for i in range(70):
        writer.append({"kind": "note", "step": 5, "sentence": f"again {i}"})
    writer.close()
    with path.open("ab") as file:
        file.write(b"{")
    drawn = page_sections(labelled_runs([store.read(path)]))
    for words in (
        "the last line is torn (1 bytes)",
        "resumed at step 5.",
        "step 5: again 69.",
        "12 earlier notes left out.",
    ):
        assert f"<li>{words}" in drawn["piece-notes"]
    first = drawn["piece-verdict"].split("</p>")[2]  # after the verdict, the latest
    assert '<span class="badge note">note</span> step 5: again 69. ' in first and "the last line is torn" in first
    assert '<a href="#piece-notes">70 more below</a>' in first and "conv1" not in first


def test_five_long_runs_are_a_small_page(tmp_path):
    """Five runs of 5000 lines are 5 MB at most; the lines are not parsed from a file to spare the time."""
    steps = [step(number, 41) for number in range(1, 5001, 50)]
    losses = [{"step": i + 1, "loss": 1 + (i * 7919 % 1000) / 1000} for i in range(5000)]
    many = tuple(packed_step({**steps[i // 50], **loss}) for i, loss in enumerate(losses))
    top = {**header(20), "format": "normgauge-run"}
    five = [store.Run(tmp_path / name / "run.jsonl", top, many, (alarm(9),)) for name in "abcde"]
    page = runs_html(labelled_runs(five), "runs")
    assert 200_000 < len(page.encode()) < 5_000_000


def test_many_layers_share_rows_and_the_table_shows_the_worst(tmp_path):
    path = written(tmp_path / "a", steps=4, blocks=300)
    writer = store.resume(path, header(300))
    writer.append(alarm(4, "blocks.299.norm"))
    writer.close()
    page = unescape(shown(path))
    assert "601 layers at step 4; the 400 with alarms or the largest changes are shown" in page
    assert page.count('<tr id="r0-') == 400 and 'class="open"><td class="n">600</td>' in page
    assert "blocks.0.linear … blocks.1.linear" in page


def test_writing_and_its_mistakes(tmp_path, runs):
    written_page = write_file(shown(runs[0]), tmp_path / "a.html")
    assert written_page.read_text(encoding="utf-8").startswith("<!doctype")
    with pytest.raises(InputError, match="cannot write"):
        write_file(shown(runs[0]), tmp_path / "none" / "a.html")
