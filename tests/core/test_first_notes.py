"""Notes that the first lines repeat: the measured output, and padding that counts."""

from __future__ import annotations

import re
from dataclasses import replace

import torch
from torch import nn

import normgauge as ng
from normgauge.core import reference
from normgauge.core.first_notes import PADDING, padding_notes
from normgauge.core.spelled import LN10
from normgauge.render.console import reading_text
from normgauge.render.page import body, grouped_readings
from normgauge.render.verdict import bracket_sentence, gap_line, standing_sentence
from tests.made import reading


class Encoder(nn.Module):
    """A model of words that forgets what its mask is for."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked, self.words, self.layer = masked, nn.Embedding(9, 4), nn.Linear(4, 4)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.layer(self.words(input_ids))
        hidden = hidden * attention_mask.unsqueeze(-1).to(hidden) if self.masked else hidden
        return {"last_hidden_state": hidden, "pooler_output": hidden[:, 0]}


BATCH = {
    "input_ids": torch.tensor([[1, 2, 3], [4, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
}


def first_lines(found: ng.Reading) -> str:
    return " ".join(reading_text(found).partition("How much a small")[0].split())


def test_padding_that_counts_is_said_in_the_first_lines_of_terminal_and_page():
    found = ng.gauge(Encoder(masked=False), BATCH, search=False)
    said = "padding counts: 2 of 6 positions are padding and are in the output"
    assert said in first_lines(found) and reading_text(found).count("padding counts") == 1
    page = re.sub(r"<[^>]+>", "", body(grouped_readings([found])))
    assert said in page and page.index(said) < page.index("The largest Jacobian norm")


def test_padding_that_does_not_count_is_a_note():
    found = ng.gauge(Encoder(masked=True), BATCH, search=False)
    assert "2 of 6 positions are padding and are left out of the output" in found.notes
    assert PADDING not in reading_text(found)
    pooled = ng.gauge(Encoder(masked=False), BATCH, output="pooler_output", search=False)
    assert not padding_notes(pooled.notes) and not any("are padding" in note for note in pooled.notes)


def test_the_first_line_names_the_output():
    found = ng.gauge(Encoder(masked=True), BATCH, search=False)
    assert "measured in input_ids to last_hidden_state, 2 samples" in first_lines(found)
    notes = ("measured output: logits; not measured: hidden",)
    assert "measured in the input to logits" in first_lines(reading(notes=notes))
    assert "measured" not in first_lines(reading())


def test_a_network_stands_among_others_with_such_inputs_and_outputs():
    (own, *_) = reference.load_reference("minilm")
    other = replace(own, weights="sha256:0")
    assert "all-MiniLM-L6-v2" not in standing_sentence(own)
    assert "all-MiniLM-L6-v2" in standing_sentence(other) and "ResNet" not in standing_sentence(other)
    told = standing_sentence(reading())
    assert "GPT-2" not in told and "each on data of its own size and scale" in told
    for notes in (("measured output: sentence_embedding; not measured: last_hidden_state",), ()):
        assert standing_sentence(replace(other, notes=notes)).startswith("No other reference network has such inputs")


def test_the_gap_is_rounded_up_and_no_balanced_bound_where_none_was_asked_for():
    found = reading(log_upper=2.7055 * LN10, log_lower=2.6945 * LN10, log_balanced=3 * LN10, method="jacobian")
    assert "gap 0.011 decades" in gap_line(found) and "within 0.02 decades" in bracket_sentence(found)
    assert "balanced 3" in gap_line(found)
    assert "balanced" not in gap_line(replace(found, options={"balance": False}))
