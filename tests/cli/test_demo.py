from __future__ import annotations

import json

import pytest
import torch

from normgauge.cli import main
from normgauge.cli.demo_networks import rescaled_twin
from normgauge.lab.zoo import mlp


@pytest.fixture
def net():
    torch.manual_seed(0)
    model = mlp((6, 8, 8, 3), norm="batch")
    model(torch.randn(64, 6))  # running statistics worth the name
    return model.eval()


@pytest.mark.parametrize("span", [(0.0, 0.0), (3.0, 3.0), (-2.0, 4.0), (-9.0, -9.0)])
def test_rescaling_leaves_the_function_alone(net, span):
    x = torch.randn(10, 6, dtype=torch.float64)
    twin, same = rescaled_twin(net, x, *span), rescaled_twin(net, x, 0.0, 0.0)
    assert torch.allclose(twin(x), same(x), rtol=1e-9, atol=1e-9)
    variances = [buffer for name, buffer in twin.named_buffers() if name.endswith("running_var")]
    assert len(variances) == 2 and all((variance >= 0).all() for variance in variances)
    weights = [layer.linear.weight / other.linear.weight for layer, other in zip(twin.layers, same.layers, strict=True)]
    assert all((ratio != 1).any() for ratio in weights) is (span != (0.0, 0.0))


def test_rescaling_moves_the_weights_of_the_copy_only(net):
    before = net.layers[0].linear.weight.clone()
    twin = rescaled_twin(net, torch.randn(4, 6, dtype=torch.float64), 3.0, 3.0)
    assert torch.allclose(twin.layers[0].linear.weight, 1000 * before.double())
    assert torch.equal(net.layers[0].linear.weight, before)


@pytest.mark.slow
def test_the_demo_tells_its_story(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["demo", "--quick", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "P_w by" in told and "report.html" in told
    data = json.loads((out / "readings.json").read_text())
    assert list(data["accuracy"]) == ["no norm", "BatchNorm", "LayerNorm", "GroupNorm", "RMSNorm"]
    twins = data["readings"][-3:]
    p_w = [r["published"]["log10_P_w"] for r in twins]
    balanced = [r["log10_upper"] for r in twins]
    assert max(p_w) - min(p_w) > 6
    assert max(balanced) - min(balanced) < 1e-3
    assert max(data["output_change"].values()) < 1e-9
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<figcaption>Gain by depth") == len(data["readings"]) and "Side by side" in page
    assert main(["report", str(out / "readings.json"), "--html", str(out / "again.html")]) == 0


def test_a_folder_that_cannot_be_made_is_a_mistake(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file" / "out")]) == 1
    assert "cannot make the folder" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_told_before_training(tmp_path, capsys):
    (tmp_path / "report.html").mkdir()
    assert main(["demo", "--out", str(tmp_path)]) == 1
    assert f"cannot write {tmp_path / 'report.html'}: Is a directory" in capsys.readouterr().err
    assert not (tmp_path / "readings.json").exists()
