"""Watch a Lightning fit with a callback (needs the extra ``lightning``).

Run: python examples/lightning_fit.py
"""

import logging
import tempfile
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")  # Lightning's advice on workers and the like
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

import lightning.pytorch as pl  # noqa: E402

from normgauge.core import store  # noqa: E402
from normgauge.monitor.adapters.lightning import MonitorCallback  # noqa: E402


class Classifier(pl.LightningModule):
    """A small network with one normalizer."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch, index):
        """The loss of one batch."""
        inputs, labels = batch
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def configure_optimizers(self):
        """Plain Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(256, 20), torch.randint(0, 2, (256,)))
loader = torch.utils.data.DataLoader(data, batch_size=32)
folder = tempfile.mkdtemp()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = pl.Trainer(
    max_epochs=2, accumulate_grad_batches=2, accelerator="cpu", callbacks=[MonitorCallback(folder, every=1)], **quiet
)
trainer.fit(Classifier(), loader)

run = store.read(folder)
print(f"{trainer.global_step} optimizer steps, {len(run.steps)} of them read")
print(f"layers: {', '.join(run.layers)}")
print(f"log10 P_w from {run.total('log10_P_w')[0][1]:.3f} to {run.total('log10_P_w')[-1][1]:.3f}")
