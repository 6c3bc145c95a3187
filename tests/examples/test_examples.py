"""Every example runs as a script and prints what it promises."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples"
LINES = {
    "accelerate_loop": r"8 batches, 4 optimizer steps read\nstep 1: smallest σ 0\.\d+, update of the first layer \d",
    "advice": r"accuracy after 8 epochs, as it is: 0\.[0-3]\d\naccuracy after 8 epochs, as advised: 0\.[89]\d",
    "batchnorm_or_not": r"product of spectral norms P_w: [\d.]+, BELOW the steepest slope found",
    "certified": r"(?m)^Hold-out, Clopper-Pearson +bound +0\.0\d+ +\d+ of 200 wrong\n[^$]*20, as published +vacuous ",
    "custom_layer": r"with the rule, scope global  : between 0\.\d+ and 0\.\d+ \(proved\)",
    "hessian_defect": r"(?m)^LayerNorm( +\d\.\de-\d\d){5}\n",
    "lightning_fit": r"8 optimizer steps, 8 of them read\nlayers: net\.0, net\.1, net\.3\nlog10 P_w from ",
    "plain_loop": r"\d+ readings in 300 steps\nproduct of spectral norms +: 10\^\d\.\d+ at step 1, ",
    "six_symmetries": r"(?m)^covered: P_w moves by up to [3-9]\.\d+, folded [3-9]\.\d+, balanced 0\.00[01]\d decades$",
    "small_transformer": r"blocks\.0\.attn\S*: attention on tokens that may be of any length",
    "sphere_sgd": r"(?m)^SphereSGD +1\.155\d  1\.155\d  1\.155\d$[^$]*predicted within [0-4]\.\d %; 5\.1 degrees",
    "three_scopes": r"global +9\.\d+ +24\.\d+",
    "trainer": r"8 optimizer steps read; tied: \{'lm_head': 'transformer\.wte'\}\nstep 1: smallest σ",
    "two_gauges": r" 6 +\d\.\de-1\d +10\.20 +-4\.90 +7\.37 +2\.6\d\d +2\.6\d\d",
    "who_owns_the_gap": r"with a silent unit: between [\d.]+ and [\d.]+, a gap of 1\.\d+ decades, owned by layers\.1",
}


NEEDS = {
    "accelerate_loop": ["accelerate"],
    "lightning_fit": ["lightning"],
    "trainer": ["transformers", "accelerate"],
}


def test_every_example_is_tested():
    assert {path.stem for path in FOLDER.glob("*.py")} - {"net"} == set(LINES)


@pytest.mark.slow
@pytest.mark.usefixtures("brief_search")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func's own
@pytest.mark.parametrize("name", sorted(LINES.keys() - NEEDS.keys()))
def test_an_example_runs_and_prints_what_it_promises(name, tmp_path, monkeypatch, capsys):
    if name in ("advice", "batchnorm_or_not", "six_symmetries", "who_owns_the_gap"):
        pytest.importorskip("sklearn", reason="the digits come with scikit-learn: pip install normgauge[data]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(FOLDER)  # as for a script
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    finally:  # a script may choose both for its process, which here is everybody's
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        sys.modules.pop("net", None)
    said = capsys.readouterr().out
    assert re.search(LINES[name], said), said


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NEEDS))
def test_an_example_with_a_framework_runs_in_a_process_of_its_own(name, tmp_path):
    for package in NEEDS[name]:  # each keeps settings for its whole process
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert re.search(LINES[name], done.stdout), done.stdout
