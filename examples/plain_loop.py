"""Watch a plain training loop: two lines of the monitor, then what the file says.

Run: python examples/plain_loop.py
"""

import tempfile

import torch
from torch import nn

import normgauge as ng
from normgauge.core import store

torch.manual_seed(0)
inputs = torch.randn(512, 20)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

monitor = ng.Monitor(model, tempfile.mkdtemp(), optimizer=optimizer)
for _ in range(300):
    chosen = torch.randint(0, 512, (64,))
    loss = nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    monitor.step(loss=loss)
monitor.close()

run = store.read(monitor.path)
print(f"{len(run.steps)} readings in 300 steps")
for name, what in (("log10_P_w", "product of spectral norms"), ("log10_folded", "folded with the normalizers")):
    first, last = run.total(name)[0], run.total(name)[-1]
    print(f"{what:28}: 10^{first[1]:.2f} at step {first[0]}, 10^{last[1]:.2f} at step {last[0]}")
for alarm in run.alarms:
    print(f"alarm at step {alarm['step']}: {alarm['sentence']}")
