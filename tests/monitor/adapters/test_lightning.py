"""The Lightning callback: one reading an optimizer step, under both names of the package."""

from __future__ import annotations

import csv
import importlib
import warnings

import pytest
import torch
from torch import nn

from normgauge.core import store

pytestmark = pytest.mark.adapters
NAMES = ("lightning.pytorch", "pytorch_lightning")


def module_of(pl, accumulate=1):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
            self.kept, self.updates, self.given = None, [], []

        def training_step(self, batch, index):
            if index % accumulate == 0:
                self.kept = self.net[0].weight.detach().clone()
            loss = self.net(batch[0]).square().mean()
            self.given.append(float(loss))
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rates, "interval": "step"}}

        def on_train_batch_end(self, outputs, batch, index):
            if (index + 1) % accumulate == 0:
                self.updates.append(float((self.net[0].weight - self.kept).norm()))

    return Module()


def loader(batches=6):
    made = torch.Generator().manual_seed(2)
    data = torch.utils.data.TensorDataset(torch.randn(8 * batches, 4, generator=made))
    return torch.utils.data.DataLoader(data, batch_size=8)


def fit(pl, module, callback, folder, *, ckpt_path=None, batches=6, **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "logger": False}
    quiet |= {"enable_checkpointing": False, "max_epochs": 1, "default_root_dir": folder, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(callbacks=[callback], **quiet)
        trainer.fit(module, loader(batches), ckpt_path=ckpt_path)
    return trainer


@pytest.fixture(params=NAMES)
def pl(request):
    pytest.importorskip(request.param)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(request.param)


def callback_of(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from normgauge.monitor.adapters.lightning import MonitorCallback
    return MonitorCallback(*args, **options)


def test_one_line_an_optimizer_step(pl, tmp_path):
    module = module_of(pl)
    trainer = fit(pl, module, callback_of(tmp_path / "run", every=1), tmp_path)
    run = store.read(tmp_path / "run")
    assert [line["step"] for line in run.steps] == list(range(1, trainer.global_step + 1)) == list(range(1, 7))
    assert run.layers == ["net.0", "net.1", "net.2"] and run.end is not None
    assert [line["lr"] for line in run.steps] == pytest.approx([0.1 * 0.5**n for n in range(6)], rel=1e-5)
    assert [value for _, value in run.total("loss")] == pytest.approx(module.given, rel=1e-5)
    assert [value for _, value in run.series("update", "net.0")] == pytest.approx(module.updates, rel=1e-4)
    last = float(module.net[0].weight.grad.norm())
    assert run.series("gradient", "net.0")[-1][1] == pytest.approx(last, rel=1e-5)


def test_accumulated_batches_are_one_step(tmp_path):
    pl = importlib.import_module(NAMES[0])
    module = module_of(pl, accumulate=3)
    fit(pl, module, callback_of(tmp_path / "run", every=1), tmp_path, accumulate_grad_batches=3)
    run = store.read(tmp_path / "run")
    assert [line["step"] for line in run.steps] == [1, 2]
    means = [sum(module.given[:3]) / 3, sum(module.given[3:]) / 3]
    assert [value for _, value in run.total("loss")] == pytest.approx(means, rel=1e-5)
    assert [value for _, value in run.series("update", "net.0")] == pytest.approx(module.updates, rel=1e-4)


def test_mixed_precision(tmp_path):
    pl = importlib.import_module(NAMES[0])
    fit(pl, module_of(pl), callback_of(tmp_path / "run", every=1), tmp_path, precision="bf16-mixed")
    run = store.read(tmp_path / "run")
    assert len(run.steps) == 6 and not run.notes
    assert [value > 0 for _, value in run.series("gradient", "net.0")] == [True] * 6


def test_a_fit_from_a_checkpoint_goes_on_with_the_run(tmp_path):
    pl = importlib.import_module(NAMES[0])
    trainer = fit(pl, module_of(pl), callback_of(tmp_path / "run", every=1), tmp_path, batches=3)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    fit(
        pl, module_of(pl), callback_of(tmp_path / "run", every=1), tmp_path, ckpt_path=tmp_path / "a.ckpt", max_epochs=2
    )
    run = store.read(tmp_path / "run")
    assert len(run.resumes) == 1 and run.resumes[0]["step"] == 3
    assert [line["step"] for line in run.steps] == list(range(1, 10))


def test_totals_go_to_the_logger_when_asked(tmp_path):
    pl = importlib.import_module(NAMES[0])
    loggers = importlib.import_module(f"{NAMES[0]}.loggers")
    logger = loggers.CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    fit(pl, module_of(pl), callback_of(tmp_path / "run", every=1, log=True), tmp_path, logger=logger)
    with open(f"{logger.log_dir}/metrics.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    run = store.read(tmp_path / "run")
    mine = [(int(row["step"]), float(row["normgauge/log10_P_w_lower"])) for row in rows]
    assert [step for step, _ in mine] == [step for step, _ in run.total("log10_P_w_lower")]
    assert [value for _, value in mine] == pytest.approx([value for _, value in run.total("log10_P_w_lower")], rel=1e-5)


def test_the_run_is_ended_after_an_exception(tmp_path):
    pl = importlib.import_module(NAMES[0])
    module = module_of(pl)

    def broken(batch):
        raise RuntimeError("a fault of the training")

    module.training_step = broken
    with pytest.raises(RuntimeError, match="a fault"):
        fit(pl, module, callback_of(tmp_path / "run"), tmp_path)
    assert store.read(tmp_path / "run").end is not None
