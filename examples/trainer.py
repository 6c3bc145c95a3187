"""Watch the Trainer of Hugging Face transformers with a callback (needs the extras ``llm`` and ``accelerate``).

Run: python examples/trainer.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from normgauge.core import store
from normgauge.monitor.adapters.transformers import MonitorCallback


class Texts(torch.utils.data.Dataset):
    """Sixty-four made-up sentences of sixteen tokens."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = torch.randint(0, 100, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids.clone()}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=16))
folder = tempfile.mkdtemp()
arguments = TrainingArguments(
    output_dir=f"{folder}/out",
    max_steps=8,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
callback = MonitorCallback(f"{folder}/run", every=1)
Trainer(model=model, args=arguments, train_dataset=Texts(), callbacks=[callback]).train()

run = store.read(f"{folder}/run")
tied = {layer["name"]: layer["tied"] for layer in run.header["layers"] if layer["tied"]}
print(f"{len(run.steps)} optimizer steps read; tied: {tied}")
for step, sigma in run.series("sigma_min", "transformer.ln_f")[::7]:
    print(f"step {step}: smallest σ of the last normalizer {sigma:.3f}, loss {dict(run.total('loss'))[step]:.3f}")
