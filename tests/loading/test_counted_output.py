"""What of a Hugging Face model's output counts: padding does not, and a sentence encoder's embedding comes first."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional

import normgauge as ng
from normgauge.cli import main
from normgauge.instrument.measure import gauge
from normgauge.loading import load_model
from normgauge.loading.counted_output import EMBEDDING, folder_pooling, padding_warning
from normgauge.loading.made_batch import SENTENCES, made_batch

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
IDS, REAL = [5, 6, 7], 3


def padded(more: int = 3) -> dict[str, torch.Tensor]:
    mask = torch.tensor([[1] * REAL + [0] * more])
    return {"input_ids": torch.tensor([[*IDS, *[0] * more]]), "attention_mask": mask}


def write_pooling(folder, mode: str = "pooling_mode_mean_tokens", kinds: str = "Transformer Pooling Normalize"):
    parts = [
        {"path": "1_Pooling" if "Pool" in k else "", "type": f"sentence_transformers.models.{k}"} for k in kinds.split()
    ]
    (folder / "modules.json").write_text(json.dumps(parts))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({mode: True, "pooling_mode_max_tokens": False}))


@pytest.mark.llm
class TestCountedOutput:
    @pytest.fixture
    def folder(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        config = transformers.BertConfig(**SMALL, vocab_size=30, max_position_embeddings=16)
        model = transformers.BertModel(config)
        with torch.no_grad():  # as trained ones have it: what a pad token becomes is divided by a small number
            model.embeddings.word_embeddings.weight[0] *= 1e-3
        model.save_pretrained(tmp_path)
        return tmp_path

    def test_a_sentence_is_as_sensitive_alone_as_beside_padding(self, folder):
        model = load_model(str(folder))
        alone = gauge(model, {"input_ids": torch.tensor([IDS])}, search=False)
        beside = gauge(model, padded(), search=False)
        assert beside.log_lower == pytest.approx(alone.log_lower, abs=1e-3)
        assert beside.log_upper == pytest.approx(alone.log_upper, abs=0.05)

    def test_real_tokens_are_left_as_they_are(self, folder):
        model = load_model(str(folder))
        out = model(**padded(), output_hidden_states=True)
        assert not out["last_hidden_state"][:, REAL:].any() and not out["hidden_states"][1][:, REAL:].any()
        alone = model(torch.tensor([IDS]))
        assert torch.allclose(out["last_hidden_state"][:, :REAL], alone["last_hidden_state"], atol=1e-6)
        assert torch.allclose(out["pooler_output"], alone["pooler_output"], atol=1e-6)
        plain = model(**padded(), return_dict=False)
        assert not plain[0][:, REAL:].any()

    def test_a_decoder_has_a_mask_of_its_own(self):
        transformers = pytest.importorskip("transformers")
        from normgauge.loading.counted_output import count_output

        shape = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 30}
        model = count_output(transformers.T5Model(transformers.T5Config(**shape)).eval(), None)
        given = {**padded(), "decoder_input_ids": torch.tensor([[1, 2, 3, 4, 5, 6]])}
        assert model(**given)["last_hidden_state"].abs().sum(-1).min() > 0
        out = model(**given, decoder_attention_mask=given["attention_mask"])
        assert not out["last_hidden_state"][:, REAL:].any()
        assert out["encoder_last_hidden_state"][:, REAL:].abs().sum() > 0

    @pytest.mark.parametrize("mode", ["pooling_mode_mean_tokens", "pooling_mode_cls_token"])
    def test_a_sentence_encoder_gives_its_embedding(self, folder, mode):
        write_pooling(folder, mode)
        model = load_model(str(folder))
        hidden = model(torch.tensor([IDS]))["last_hidden_state"]
        expected = functional.normalize(hidden.mean(1) if "mean" in mode else hidden[:, 0], dim=-1)
        assert torch.allclose(model(**padded())[EMBEDDING], expected, atol=1e-6)
        assert torch.allclose(model(torch.tensor([IDS]))[EMBEDDING], expected, atol=1e-6)
        assert any(f"measured output: {EMBEDDING}" in note for note in gauge(model, padded(), search=False).notes)
        other = gauge(model, padded(), output="last_hidden_state", search=False)
        assert any("measured output: last_hidden_state" in note for note in other.notes)

    def test_python_measures_what_the_command_does(self, folder, capsys):
        """The folder's model by a public name: the embedding, padding left out, as `normgauge gauge FOLDER` has it."""
        write_pooling(folder)
        found = ng.gauge(ng.load_model(folder), padded(), search=False)
        assert any(f"measured output: {EMBEDDING}" in note for note in found.notes)
        with pytest.raises(ng.NormgaugeError, match=r"ng\.load_model"):
            ng.gauge(str(folder), padded())

    @pytest.mark.parametrize("scope", ["ball:1e-4", "global"])
    def test_the_number_of_tokens_is_no_divisor_that_may_be_zero(self, folder, scope):
        write_pooling(folder)
        found = ng.gauge(ng.load_model(str(folder)), padded(), scope=scope, search=False)
        assert not found.no_bound and found.upper < float("inf")
        assert found.layer("div").worked == "|1/c| = 0.33333" and found.layer("div").gain.lo <= -1.0986

    def test_padding_is_not_what_a_layer_is_told_by(self, folder):
        write_pooling(folder)
        ids, mask = padded()["input_ids"], padded()["attention_mask"]
        found = ng.gauge(load_model(str(folder)), {"input_ids": ids, "attention_mask": mask}, search=False)
        alone = ng.gauge(load_model(str(folder)), {"input_ids": ids[:, :REAL]}, search=False)
        for name in ("embeddings.LayerNorm", "encoder.layer.0.output.LayerNorm"):
            assert found.layer(name).sigma["min"] == pytest.approx(alone.layer(name).sigma["min"], rel=1e-4)
            assert found.layer(name).log_stretch == pytest.approx(alone.layer(name).log_stretch, abs=1e-4)

    def test_a_head_for_training_is_no_part_of_an_encoder(self, folder):
        described = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**described, "architectures": ["BertForMaskedLM"]}))
        with pytest.raises(ng.NormgaugeError, match=r"not stored \(cls\.predictions"):
            load_model(str(folder))
        write_pooling(folder)
        assert type(load_model(str(folder))).__name__ == "BertModel"

    def test_other_pooling_is_said_not_to_be_applied(self, folder, capsys):
        write_pooling(folder)
        assert folder_pooling(folder)[1] == ""  # a switch that is off asks for nothing
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
        assert "(Transformer, Pooling, Normalize) makes the sentence embedding" in folder_pooling(folder)[1]
        write_pooling(folder, kinds="Transformer Pooling Dense")
        assert main(["gauge", str(folder), "--scope", "point", "--no-search", "--effort", "quick"]) == 0
        assert "(Transformer, Pooling, Dense) makes the sentence embedding" in capsys.readouterr().err
        (folder / "modules.json").write_text("[1]")
        assert "(unreadable)" in folder_pooling(folder)[1]

    def test_padding_that_is_read_as_words_is_said_to_be(self, folder):
        model = load_model(str(folder))
        bare = padded()["input_ids"]
        for batch in (bare, {"input_ids": bare}):
            assert padding_warning(model, batch).startswith(
                "3 of 6 tokens are the padding token 0 and no attention_mask"
            )
        for fine in (padded(), torch.tensor([IDS]), torch.randn(2, 3), {"pixel_values": torch.zeros(1)}, [IDS]):
            assert padding_warning(model, fine) == ""
        assert padding_warning(torch.nn.Linear(1, 1), bare) == ""

    def test_the_command_says_it_too(self, folder, tmp_path, capsys):
        torch.save(padded()["input_ids"], tmp_path / "ids.pt")
        asked = ["gauge", str(folder), "--batch", str(tmp_path / "ids.pt"), "--scope", "point", "--no-search"]
        assert main([*asked, "--effort", "quick"]) == 0
        assert "3 of 6 tokens are the padding token 0" in capsys.readouterr().err

    def test_a_made_batch_brings_the_mask(self, folder):
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = [word for sentence in SENTENCES for word in sentence.lower().rstrip(".").split()]
        tokenizer = Tokenizer(
            models.WordLevel({w: i for i, w in enumerate(dict.fromkeys(["?", *words]))}, unk_token="?")
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.enable_padding(pad_id=0, length=64)
        tokenizer.save(str(folder / "tokenizer.json"))
        model = load_model(str(folder))
        batch, _ = made_batch(str(folder), model)
        assert batch["attention_mask"].tolist() == [[1] * 12, [1] * 10 + [0] * 2]
        assert batch["input_ids"][1, 10:].tolist() == [0, 0] and padding_warning(model, batch) == ""
