from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import pytest

from normgauge.core.bound import Scope
from normgauge.core.errors import InputError, ReadingError
from normgauge.core.reading import Reading, Witness
from normgauge.core.spelled import LN10
from normgauge.render.page import TERMS, grouped_readings, report
from tests.made import reading
from tests.render.networks import ATTACK, PIXEL, deep, endless, hostile, residual, scopes

VOID = {"meta", "line", "rect", "polyline", "polygon", "br", "img"}


class Balance(HTMLParser):
    """Checks that every tag is closed in order and remembers the tags seen."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(page: str) -> Balance:
    balance = Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []
    return balance


def written(tmp_path, readings, **options) -> str:
    return report(readings, tmp_path / "a.html", **options).read_text(encoding="utf-8")


def visible(page: str) -> str:
    """The text of a page without tags."""
    body = page[page.index("<body>") : page.rindex("<script>")]
    return re.sub(r"<[^>]+>", " ", body)


def test_a_page_says_the_verdict_first_then_waterfall_bracket_and_layers(tmp_path):
    page = written(tmp_path, residual())
    assert parsed(page).seen >= {"table", "svg", "details", "style", "main", "header"}
    places = [page.index(words) for words in ("at most 39.82 times as much", "Gain by depth", "Where the truth lies")]
    assert [*places, page.index("<table")] == sorted([*places, page.index("<table")])


def test_nothing_on_the_page_is_loaded_from_elsewhere(tmp_path):
    page = written(tmp_path, [*scopes(), endless()])
    assert not re.search(r"(src|href)=.(?!#|data:image/png)|@import|url\(", page)
    assert set(re.findall(r"https?://[^\"\s<]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<[^>]+\son\w+=", page) and not re.search(r"<[^>]+\sstyle=", page)


def test_the_policy_allows_our_script_and_style_and_nothing_else(tmp_path):
    page = written(tmp_path, residual())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    hashes = {}
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        hashes[tag] = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert policy[1].split("; ") == [
        "default-src 'none'",
        "img-src data:",
        f"style-src 'sha256-{hashes['style']}'",
        f"script-src 'sha256-{hashes['script']}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_every_text_is_escaped(tmp_path):
    page = written(
        tmp_path, [hostile(), hostile()], labels=[ATTACK, ATTACK], title=ATTACK, beside=[(ATTACK, hostile())]
    )
    seen = parsed(page).seen
    assert "img" not in seen and page.count("<script") == 1 and page.count("</script") == 1
    assert visible(page).count("&lt;/script&gt;&lt;img") > 50


@pytest.mark.parametrize(
    ("picture", "shown"),
    [
        (PIXEL, True),
        (PIXEL + '"', False),
        (PIXEL + "\n", False),
        ("data:image/svg+xml;base64,AAAA", False),
        ("https://example.org/a.png", False),
        (7, False),
        (None, False),
    ],
)
def test_only_a_png_is_shown_as_a_picture(tmp_path, picture, shown):
    sample = {"index": 0, "log10_lower": 1.0, "log10_upper": None, "picture": picture}
    page = written(tmp_path, residual(samples=(sample,)))
    assert ("<img" in page) == shown
    assert ("example.org" in page) is False


def test_the_most_sensitive_samples_come_first(tmp_path):
    samples = tuple({"index": i, "log10_lower": 0.1 * i, "log10_upper": 3.0} for i in range(20))
    shown = re.findall(r"<b>sample (\d+)</b>", written(tmp_path, residual(samples=samples)))
    assert shown == [str(i) for i in range(19, 11, -1)]


def test_a_slope_met_away_from_a_sample_is_not_said_to_be_at_it(tmp_path):
    sample = {"index": 102, "log10_lower": 2.34}
    page = written(tmp_path, residual(samples=(sample,), scope=Scope.parse("global")))
    assert "<b>met from sample 102</b>" in page and "<b>sample 102</b>" not in page


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (16, "The 8 of 16 samples with the steepest slopes found."),
        (8, "All 8 samples, the steepest slope found first."),
        (1, '</summary><ul class="cards">'),
    ],
)
def test_the_samples_shown_are_counted(tmp_path, count, told):
    samples = tuple({"index": i, "log10_lower": 0.1 * i} for i in range(count))
    assert told in written(tmp_path, residual(samples=samples))


def test_a_page_of_several_groups_counts_readings_and_not_networks(tmp_path):
    page = written(tmp_path, [*scopes(), residual()], labels=["a: point", "a: ball:0.1", "a: global", "b"])
    assert "<p>4 readings</p></header>" in page


def test_a_long_name_is_cut_in_two_and_told_in_full(tmp_path):
    name = "encoder." * 40 + "head"
    layers = (*residual().layers[:-1], replace(residual().layers[-1], name=name))
    page = written(tmp_path, residual(layers=layers, proof=None))
    cut = f'<span class="head">{name[:-13]}</span><span>.encoder.head</span>'
    split = f'<th scope="row"><span title="{name}">{cut}</span></th>'
    assert split in page and '<th scope="row">stem</th>' in page
    layers = (replace(residual().layers[0], name="x" * 50),)
    assert f"<span>{'x' * 16}</span></span></th>" in written(tmp_path, residual(layers=layers, proof=None))


def test_scopes_of_one_network_share_a_section_and_a_bracket(tmp_path):
    page = written(tmp_path, scopes())
    assert re.findall(r'data-tab="([^"]+)"', page) == ["At the samples", "Within 0.1", "Everywhere"]
    assert "Side by side" not in page
    assert all(page.count(f"{words}: found") >= 3 for words in ("at the samples", "everywhere"))


def test_several_networks_are_compared_first(tmp_path):
    both = [residual(), residual(log_upper=3 * LN10, log_lower=2 * LN10)]
    page = written(tmp_path, both, labels=["before", "after"])
    told = "Slope at the samples: found 17.78, at most 39.82 for before; found 100, at most 1,000 for after."
    assert "2 networks." in page and told in page
    assert page.index("Side by side") < page.index("<h2>before</h2>") < page.index("<h2>after</h2>")
    assert '<a href="#g1">after</a>' in page and 'id="g1"' in page


def test_networks_without_a_bound_or_a_scope_in_common_are_compared_as_far_as_possible(tmp_path):
    page = written(tmp_path, [residual(), endless()], labels=["a", "b"])
    assert "found 17.78, no finite bound for b." in page
    page = written(tmp_path, [residual(), residual(scope=Scope.parse("global"))], labels=["a", "b"])
    assert "2 networks, measured in different scopes." in page
    again = [residual(weights="ab12"), residual(weights="ab12", scope=Scope.parse("global"))]
    assert "One network, measured in different scopes." in written(tmp_path, again, labels=["a", "b"])
    page = written(tmp_path, [residual(), endless()], labels=["a", "b"], lead=["Said by the caller."])
    assert "Said by the caller." in page and "Slope at the samples" not in page


def test_each_scope_has_its_own_found_slope_in_the_totals(tmp_path):
    changed = [residual(), residual(scope=Scope.parse("global"), log_lower=1.5 * LN10), residual(model="Other")]
    page = written(tmp_path, changed)
    totals = page[page.index("Totals:") : page.index('id="g0"')]
    assert ">17.78<" in totals and ">31.6<" in totals


def test_readings_beside_are_rows_of_the_bracket_only(tmp_path):
    page = written(tmp_path, residual(), beside=[("normal for a ResNet-20, point", residual())])
    assert page.count('class="row beside"') == 2  # wide and narrow
    assert page.count('<section class="panel') == 1


def test_what_was_assumed_is_written_down(tmp_path):
    everything = residual(
        scope=Scope.parse("ball:0.1"), displacement=LN10, witness=Witness("at sample 3", 0.5, 2.0), version="9.9.9"
    )
    told = visible(written(tmp_path, everything))
    for words in (
        "eval: as it predicts",
        "observed at sample 3: the input moved by 0.5 and the output by 2",
        "BatchNorm scale of f.0",
        "Dropout is off in eval mode.",
        "trace 0.01",
        "9.9.9",
        "while the input stays in the ball",
        "cross_entropy",
        "Π 1/σ (smallest σ)",
        "depend on the gauge",
        "‖J‖ = max |γ|/σ",
    ):
        assert words in told


def test_unknown_and_unbounded_parts_are_warned_of_on_the_first_screen(tmp_path):
    page = written(tmp_path, endless())
    assert page.index("Unbounded, provably: block.norm") < page.index("<svg")
    assert "No finite bound holds at the samples." in page


def test_every_term_is_in_the_glossary(tmp_path):
    told = visible(written(tmp_path, residual()))
    terms = {word for term, _ in TERMS for word in term.split(", ")}
    assert terms >= {
        "upper", "folded", "balanced", "lower", "found", "gap", "gauge", "scope", "sigma", "eps", "slack", "decade",
        "proved", "estimated", "observed", "unknown", "unbounded", "gain", "cumulative", "reached",
    }  # fmt: skip
    assert all(words.split(".")[0] in told for words in ("The distance between found and upper", "A factor of ten"))


def test_a_deep_network_folds_and_stays_small(tmp_path):
    page = written(tmp_path, deep(1000))
    assert page.count('<tr class="fold"') == 1 and "blocks.0 … blocks.249" in page
    assert "250 blocks of 4 layers; gains and shares are sums, slacks do not add up" in page
    (summary,) = re.findall(r'<tr class="fold".*?</tr>', page)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", summary)
    assert cells[2] == "25.00" and cells[7] == ""  # gain and slack; the name is no td
    assert len(page.encode()) < 2_000_000


def test_a_bare_reading_makes_a_page(tmp_path):
    bare = reading(layers=(), samples=(), published={}, loss={}, gauges=(), notes=(), seconds={}, rules={})
    page = written(tmp_path, bare)
    parsed(page)
    assert "Layers" not in visible(page) and "Rules used" not in page


def test_a_page_that_cannot_be_written_is_said(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*No such file or directory; give a file in a folder"):
        report(reading(), tmp_path / "none" / "a.html")


def test_nothing_to_show_is_refused(tmp_path):
    with pytest.raises(ReadingError, match="at least one reading"):
        report([], tmp_path / "a.html")
    with pytest.raises(ReadingError, match="one label for each of 1 readings, got 2"):
        report(reading(), tmp_path / "a.html", labels=["a", "b"])


def shapes(readings, labels=None):
    return [(group.label, len(group.readings)) for group in grouped_readings(readings, labels)]


def test_scopes_of_one_network_belong_together():
    assert shapes(scopes()) == [("Residual", 3)]
    assert shapes(scopes(), ["a: point", "a: ball:0.1", "a: global"]) == [("a", 3)]
    assert shapes(scopes(), ["a, point", "a, ball:0.1", "a, global"]) == [("a", 3)]


def test_the_same_scope_again_is_another_network():
    assert shapes([*scopes(), *scopes()]) == [("Residual", 3), ("Residual (2)", 3)]


def test_labels_keep_networks_apart():
    point, _, everywhere = scopes()
    assert shapes([point, everywhere], ["a: point", "b: global"]) == [("a", 1), ("b", 1)]
    assert shapes([point, everywhere], ["before", "after"]) == [("before", 1), ("after", 1)]
    assert shapes([point], ["point"]) == [("point", 1)]


def test_other_layers_or_another_mode_are_another_network():
    point, _, everywhere = scopes()
    shorter = residual(layers=point.layers[:2], scope=everywhere.scope)
    trained = residual(mode="train", scope=everywhere.scope)
    assert shapes([point, shorter]) == shapes([point, trained]) == [("Residual", 1), ("Residual (2)", 1)]


def trained(batch="sha256:x", **changes):
    """Two networks, three trainings each, at six samples; the steepest sample of the second is steeper."""
    found = []
    for seed in range(3):
        for middle, most in ((0.9 + 0.02 * seed, 1.1 + 0.1 * seed), (0.7 + 0.05 * seed, 1.2 + 0.02 * seed)):
            slopes = [middle] * 5 + [most]
            rows = tuple({"index": i, "log10_lower": s, "log10_upper": s + 1e-9} for i, s in enumerate(slopes))
            ends = {"log_lower": most * LN10, "log_upper": (most + 1e-9) * LN10}
            found.append(residual(samples=rows, weights=f"sha256:{len(found)}", batch=batch, **ends, **changes))
    return found


def test_readings_with_one_label_are_trainings_of_one_network(tmp_path):
    page = written(tmp_path, trained(), labels=["BN: point", "LN: point"] * 3)
    assert (
        "Slope of the median sample: 8.3176 (7.9433 to 8.7096) for BN, 5.6234 (5.0119 to 6.3096) for LN. Each training "
        "of LN lies below each of BN. Slope of the steepest of 6 samples: 15.849 (12.589 to 19.953) for BN, 16.596 "
        "(15.849 to 17.378) for LN. The ranges overlap."
    ) in unescape(page)
    assert "3 trainings of BN, 3 trainings of LN: of each number the median over them" in page
    assert "one training of each" not in page
    assert page.count('class="row ') == 2 * (2 + 6)  # wide and narrow, two networks, and six sections of their own
    assert {"<h2>BN</h2>", "<h2>BN (3)</h2>"} <= set(re.findall(r"<h2>[^<]*</h2>", page))


def test_without_labels_a_name_that_comes_again_is_no_training_of_the_same_network(tmp_path):
    page = written(tmp_path, trained())
    assert "6 networks, one training of each." in page and "for Residual (6)." in page


def test_what_was_measured_on_different_samples_or_in_another_mode_is_not_ranked(tmp_path):
    here, there = trained()[:1], trained(batch="sha256:y")[1:2]
    page = written(tmp_path, [*here, *there], labels=["a", "b"])
    assert "Measured on different samples" in page
    ranking = ("Slope of the median sample", "Slope of the steepest", "The steepest slope found", "one training of")
    assert not [words for words in ranking if words in page]
    whole = residual(mode="train", together=True, batch="sha256:x")
    page = written(tmp_path, [*here, whole], labels=["a", "b"])
    assert "read in different modes" in page and not [words for words in ranking[:3] if words in page]


def test_another_training_in_another_scope_is_not_taken_for_the_same_network():
    point, _, everywhere = scopes()
    other = [residual(weights="sha256:a"), residual(weights="sha256:b", scope=everywhere.scope)]
    assert shapes(other, ["a", "a"]) == [("a", 1), ("a (2)", 1)]
    assert shapes([point, everywhere], ["a", "a"]) == [("a", 2)]


def test_an_edited_file_is_never_said_to_show_that_a_rule_is_wrong(tmp_path):
    data = residual().to_json() | {"log10_upper": 0.5}
    edited = Reading.from_json(data)
    for page in (written(tmp_path, edited), written(tmp_path, [edited, residual(model="Other")])):
        told = visible(page)
        assert "EDITED at the samples: this file was changed after it was written" in told
        assert "a slope of 17.78 stands beside a bound of 3.163" in told and "Measure again" in told
        wrong = ("REFUTED", "rule is wrong", "fault of normgauge", "report the network", "refuted: a slope was found")
        assert not [words for words in wrong if words in told]
    assert "Gain by depth" not in written(tmp_path, edited)


def test_a_whole_batch_is_not_said_to_be_one_sample(tmp_path):
    whole = residual(mode="train", together=True, samples=residual().samples[:1])
    told = visible(written(tmp_path, whole))
    assert "mode train, 5 layers, a whole batch" in told and "1 sample" not in told
    assert "the whole batch" in told and "sample 3" not in told.split("Glossary")[0]
