"""Models from Hugging Face folders."""

from __future__ import annotations

import json

import pytest
import torch

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

    def test_from_the_configuration_alone(self, folder):
        (folder / "model.safetensors").unlink()
        assert type(load_model(str(folder))).__name__ == "BertModel"
        described = json.loads((folder / "config.json").read_text())
        del described["architectures"]
        (folder / "config.json").write_text(json.dumps(described))
        assert type(load_model(str(folder))).__name__ == "BertModel"

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
