"""Watch a loop of Hugging Face Accelerate with gradient accumulation (needs the extra ``accelerate``).

Run: python examples/accelerate_loop.py
"""

import tempfile

import torch
from accelerate import Accelerator
from torch import nn

import normgauge as ng
from normgauge.core import store

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(256, 20), torch.randint(0, 2, (256,)))
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
model = nn.Sequential(nn.Linear(20, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(data, batch_size=32)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

monitor = ng.Monitor(model, tempfile.mkdtemp(), every=1, optimizer=optimizer)  # after prepare(): it may wrap the model
for inputs, labels in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        if accelerator.sync_gradients:  # the optimizer has really stepped
            monitor.step(loss=loss)
        optimizer.zero_grad()
monitor.close()

run = store.read(monitor.path)
print(f"{len(loader)} batches, {len(run.steps)} optimizer steps read")
for step, sigma in run.series("sigma_min", "1"):
    print(f"step {step}: smallest σ {sigma:.3f}, update of the first layer {dict(run.series('update', '0'))[step]:.2e}")
