"""The callback for the Trainer of transformers, on tiny models made from a config."""

from __future__ import annotations

import warnings

import pytest
import torch

from normgauge.core import store

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = [pytest.mark.adapters, pytest.mark.llm]


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=40, n_positions=16)
    return transformers.GPT2LMHeadModel(config)


def llama():
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24}
    config = transformers.LlamaConfig(**sizes, vocab_size=40, tie_word_embeddings=True, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config)


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        ids = torch.randint(0, 40, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids.clone()}


class Seen(transformers.TrainerCallback):
    """What the Trainer itself logs."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **rest):
        if "loss" in logs:
            self.logs.append(logs)


def train(model, folder, *, steps=4, resume=None, accumulate=1, save=False):
    from normgauge.monitor.adapters.transformers import MonitorCallback

    seen = Seen()
    args = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        max_steps=steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulate,
        learning_rate=0.01,
        lr_scheduler_type="linear",
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        save_strategy="steps" if save else "no",
        save_steps=2,
    )
    callback = MonitorCallback(folder / "run", every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = transformers.Trainer(model=model, args=args, train_dataset=Texts(), callbacks=[callback, seen])
        trainer.train(resume_from_checkpoint=resume)
    return store.read(folder / "run"), seen.logs, callback


@pytest.mark.parametrize(("build", "norm"), [(gpt2, "transformer.ln_f"), (llama, "model.norm")], ids=["gpt2", "llama"])
def test_every_optimizer_step_is_a_line(build, norm, tmp_path):
    model = build()
    run, logs, _ = train(model, tmp_path)
    assert [line["step"] for line in run.steps] == [1, 2, 3, 4] and run.end is not None
    assert [v for _, v in run.total("loss")] == pytest.approx([log["loss"] for log in logs], rel=2e-3)
    assert [v for _, v in run.total("lr")] == pytest.approx([0.01, 0.0075, 0.005, 0.0025], rel=1e-5)
    assert [value > 0 for _, value in run.series("sigma_min", norm)] == [True] * 4
    tied = {layer["name"]: layer["tied"] for layer in run.header["layers"] if layer["tied"]}
    assert len(tied) == 1 and "lm_head" in tied
    gradients = [v for _, v in run.total("gradient")]
    assert len(gradients) == 4 and all(g > 0 for g in gradients) and not run.notes
    assert not model._forward_hooks


def test_accumulation_and_a_checkpoint(tmp_path):
    train(gpt2(), tmp_path, accumulate=2, save=True, steps=2)
    run, logs, callback = train(gpt2(), tmp_path, accumulate=2, resume=str(tmp_path / "out" / "checkpoint-2"))
    assert [line["step"] for line in run.steps] == [1, 2, 3, 4]
    assert [resume["step"] for resume in run.resumes] == [2]
    assert [v for _, v in run.total("loss")][2:] == pytest.approx([log["loss"] for log in logs], rel=2e-3)
    assert callback.monitor is not None and callback.monitor.path == str(run.path)
