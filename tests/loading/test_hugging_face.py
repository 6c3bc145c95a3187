"""Models from Hugging Face folders."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from normgauge import gauge
from normgauge.core.errors import LoadError
from normgauge.loading import load_model


def refusal(load, spec) -> str:
    with pytest.raises(LoadError) as caught:
        load(str(spec))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.llm
class TestHuggingFace:
    @pytest.fixture
    def folder(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        config = transformers.BertConfig(**small, vocab_size=11, max_position_embeddings=8)
        self.model = transformers.BertModel(config)
        self.model.save_pretrained(tmp_path)
        return tmp_path

    def test_with_weights(self, folder):
        loaded = load_model(str(folder))
        assert type(loaded).__name__ == "BertModel"
        assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), self.model.parameters(), strict=True))

    def test_without_an_architecture(self, folder):
        self.describe(folder, architectures=None)
        assert type(load_model(str(folder))).__name__ == "BertModel"

    def test_a_configuration_alone_has_no_weights_to_measure(self, folder):
        (folder / "model.safetensors").unlink()
        assert "expected weights (*.safetensors) beside its config.json, got none" in refusal(load_model, folder)

    def describe(self, folder, **said):
        described = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**described, **said}))

    def keep(self, folder, change):
        """Store the weights anew, changed; as a file of another hand would hold them."""
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path, {"format": "pt"})

    @pytest.mark.parametrize("lacking", ["encoder.layer.0.output.", "embeddings.LayerNorm.weight"])
    def test_weights_that_were_not_stored_are_refused_by_name(self, folder, lacking):
        self.keep(folder, lambda state: {name: w for name, w in state.items() if not name.startswith(lacking)})
        said = refusal(load_model, folder)
        assert "expected all weights of BertModel, got" in said and f"not stored ({lacking}" in said

    def test_a_head_that_was_not_stored_is_refused(self, folder):
        self.describe(folder, architectures=["BertForSequenceClassification"])
        assert "2 not stored (classifier.bias, classifier.weight)" in refusal(load_model, folder)

    def test_a_pooler_that_is_used_is_refused(self, folder):
        self.keep(folder, lambda state: {f"bert.{n}": w for n, w in state.items() if not n.startswith("pooler")})
        self.describe(folder, architectures=["BertForSequenceClassification"])
        assert "bert.pooler.dense.bias" in refusal(load_model, folder)

    def test_a_pooler_that_is_not_used_is_taken_off_and_said_to_be(self, folder):
        self.keep(folder, lambda state: {n: w for n, w in state.items() if not n.startswith("pooler")})
        model, batch = load_model(str(folder)), torch.tensor([[1, 2, 3]])
        assert model(batch).pooler_output is None
        assert any("no pooler here: its weights were not stored" in note for note in gauge(model, batch).notes)

    def test_weights_of_another_shape_or_name_are_named(self, folder):
        self.keep(folder, lambda state: {**state, "embeddings.LayerNorm.weight": torch.ones(4)})
        said = refusal(load_model, folder)
        assert "1 of another shape (embeddings.LayerNorm.weight: 4 stored, 8 in the model)" in said
        self.keep(folder, lambda state: {f"module.{name}": w for name, w in state.items()})
        said = refusal(load_model, folder)
        assert "not stored (embeddings." in said and "stored but no part of it (module.embeddings." in said

    def test_weights_that_are_no_part_of_the_model_are_told(self, folder):
        self.keep(folder, lambda state: {**state, "head.weight": torch.ones(4)})
        notes = gauge(load_model(str(folder)), torch.tensor([[1, 2, 3]])).notes
        assert "1 stored weight (head.weight) are no part of BertModel" in notes

    def test_tied_weights_are_stored_once(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        shape = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": 11}
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).save_pretrained(tmp_path)
        assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
        assert type(load_model(str(tmp_path))).__name__ == "GPT2LMHeadModel"

    def test_its_own_code_is_never_run(self, folder):
        (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "modeling.Net"}}))
        assert "which is never run" in refusal(load_model, folder)

    def test_pickled_weights_are_refused(self, folder):
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        assert "its weights are pickled" in refusal(load_model, folder)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("{", "expected JSON"),
            ("[]", "expected a JSON object"),
            ("{}", "could not build it"),
            (None, "with a config.json, got none"),
        ],
    )
    def test_a_folder_that_is_none(self, folder, content, message):
        (folder / "config.json").unlink() if content is None else (folder / "config.json").write_text(content)
        assert message in refusal(load_model, folder)
