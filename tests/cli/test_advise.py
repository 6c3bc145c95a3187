"""`normgauge advise` from the command line to the exit code."""

from __future__ import annotations

import json

import pytest

from normgauge.cli import main

NET = """\
import torch
from torch import nn

print("a line of the user's own")


def build(depth=2):
    torch.manual_seed(0)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(8, 8), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(8, 3))

def deep():
    return build(24)

def odd():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)
    return nn.Sequential(build(), Odd())

def batch():
    return torch.randn(16, 8)
"""


@pytest.fixture
def advise(tmp_path, capsys):
    path = tmp_path / "net.py"
    path.write_text(NET)

    def run(model: str, *options: str, batch: str | None = "batch") -> tuple[int, str, str]:
        given = [] if batch is None else ["--batch", f"{path}:{batch}"]
        code = main(["advise", f"{path}:{model}", *given, *options])
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run


@pytest.mark.llm
def test_of_a_folder_a_batch_is_made_as_for_gauge(tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(**small, vocab_size=30, max_position_embeddings=12)
    transformers.BertModel(config).save_pretrained(tmp_path)
    assert main(["advise", str(tmp_path), "--no-facts"]) == 0
    said = capsys.readouterr()
    assert "No batch was given. One was made" in said.err and "BertModel, eval mode" in said.out
    assert main(["advise", str(tmp_path / "none"), "--no-facts"]) == 1
    assert "got no such file or folder" in capsys.readouterr().err


def test_a_healthy_network(advise):
    code, out, err = advise("build")
    assert code == 0 and out.startswith("Sequential, eval mode: no problem found\nfacts\n")
    assert "a line of the user's own" in err


def test_a_problem_in_words_and_as_json(advise, tmp_path):
    code, out, _ = advise("deep", "--no-facts")
    assert code == 0 and "1. [vanishes] between 0 and 48 (25 layers)" in out
    code, out, _ = advise("deep", "--json", "-")
    data = json.loads(out)
    assert code == 0 and data["schema"] == 1 and data["problems"][0]["fix"]["kind"] == "batch"
    code, out, _ = advise("deep", "--no-facts", "--json", str(tmp_path / "a.json"))
    assert out and json.loads((tmp_path / "a.json").read_text())["problems"][0]["kind"] == "vanishes"


def test_exit_codes(advise):
    assert advise("deep", "--no-facts", "--fail-on-problem")[0] == 3
    assert advise("build", "--no-facts", "--fail-on-problem")[0] == 0
    code, _, err = advise("odd", "--no-facts", "--strict")
    assert code == 2 and "special_bessel_j0" in err
    code, _, err = advise("broken", batch="nowhere")
    assert code == 1 and "has no 'nowhere'" in err  # of two mistakes the batch's is told first: nothing was built
    code, _, err = advise("build", batch=None)
    assert code == 1 and "a batch is needed" in err
