from __future__ import annotations

import math
import re

from normgauge.core.bound import Evidence
from normgauge.core.reading import Finding
from normgauge.render.console import reading_text
from normgauge.render.panel import panel, reading_notebook
from normgauge.render.verdict import balance_sentence, reading_verdict, verdict_line
from tests.made import reading


def test_a_proved_bound_in_two_sentences():
    assert reading_verdict(reading(notes=())) == [
        "A small change of the input changes the output by at most 100 times as much at the samples (proved).",
        "The largest Jacobian norm found there is 17.8, so the truth lies within 0.75 decades; head (Linear) "
        "has the most slack, 0.43.",
    ]


def test_terminal_page_notebook_and_json_say_the_same():
    for found in (reading(), reading(log_upper=math.inf), reading(mode="train")):
        line = verdict_line(found)
        assert line in " ".join(reading_text(found).split())
        assert found.to_json()["verdict"] == line
        for shown in (panel(found, [], "k", 2, opened=True, heading=False), reading_notebook(found)):
            assert line in re.sub(r"<[^>]+>", "", shown)


def test_train_mode_speaks_of_the_whole_batch():
    assert "A small change of the whole batch" in reading_verdict(reading(mode="train"))[0]


def test_a_number_that_is_only_estimated_says_so():
    assert "The upper number is estimated, not proved." in reading_verdict(reading(evidence=Evidence.ESTIMATED))


def test_nothing_found_and_nothing_bounded():
    assert reading_verdict(reading(log_lower=-math.inf))[1] == "No slope above zero was found."
    assert reading_verdict(reading(log_upper=math.inf))[1] == (
        "The largest Jacobian norm found there is 17.8; above it nothing is ruled out."
    )


def test_a_long_list_of_findings_is_cut():
    many = tuple(Finding(f"n{i}", "no rule") for i in range(7))
    told = " ".join(reading_verdict(reading(unknown=many, log_upper=math.inf)))
    assert "n3: no rule; and 3 more." in told and "n4" not in told


def test_what_weights_and_normalizers_do():
    told = balance_sentence(reading())
    assert told is not None
    assert "gains give 10^1.75 (56.2) and those of 1 normalizer 10^-0.50 (0.316)" in told
    assert balance_sentence(reading(layers=())) is None
