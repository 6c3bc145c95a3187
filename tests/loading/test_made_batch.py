"""Models of folders without a batch: one is made, and said to be; weights beside their configuration; GGUF."""

from __future__ import annotations

import json

import pytest
import torch

from normgauge.cli import main
from normgauge.core.errors import LoadError
from normgauge.loading import is_folder, load_model
from normgauge.loading.made_batch import SENTENCES, made_batch

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.mark.llm
class TestMadeBatch:
    @pytest.fixture
    def folder(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        config = transformers.BertConfig(**SMALL, vocab_size=30, max_position_embeddings=12)
        transformers.BertModel(config).save_pretrained(tmp_path)
        return tmp_path

    def test_tokens_come_from_the_configuration(self, folder):
        batch, said = made_batch(str(folder), load_model(str(folder)))
        assert batch["input_ids"].shape == (2, 12) and int(batch["input_ids"].max()) < 30
        assert "No batch was given." in said and "random tokens out of 30" in said

    def test_or_from_the_tokenizer(self, folder):
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = [word for sentence in SENTENCES for word in sentence.lower().rstrip(".").split()]
        known = {word: i for i, word in enumerate(dict.fromkeys(["?", *words]))}
        tokenizer = Tokenizer(models.WordLevel(known, unk_token="?"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.save(str(folder / "tokenizer.json"))
        batch, said = made_batch(str(folder), load_model(str(folder)))
        assert batch["input_ids"][0, 1].item() == known["small"] and "by its tokenizer" in said
        (folder / "tokenizer.json").write_text("{")
        with pytest.raises(LoadError, match=r"tokenizer cannot be read .*; give --batch"):
            made_batch(str(folder), load_model(str(folder)))

    def test_weights_beside_their_configuration_are_a_model(self, folder):
        weights = str(folder / "model.safetensors")
        assert is_folder(weights) and type(load_model(weights)).__name__ == "BertModel"
        (folder / "config.json").unlink()
        assert not is_folder(weights)
        with pytest.raises(LoadError, match="weights alone have no architecture"):
            load_model(weights)

    def test_images_have_the_size_of_the_configuration(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        model = transformers.ViTModel(transformers.ViTConfig(**SMALL, image_size=8, patch_size=4))
        batch, said = made_batch(str(tmp_path), model)
        assert batch["pixel_values"].shape == (2, 3, 8, 8) and "images of random numbers" in said
        model = transformers.ResNetModel(transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1]))
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({"crop_size": {"height": 32, "width": 32}}))
        assert made_batch(str(tmp_path), model)[0]["pixel_values"].shape == (2, 3, 32, 32)

    def test_the_command_says_that_it_made_one(self, folder, capsys):
        assert main(["gauge", str(folder), "--scope", "point", "--no-search", "--effort", "quick"]) == 0
        said = capsys.readouterr()
        assert "No batch was given. One was made from the configuration" in said.err and "BertModel" in said.out

    def test_another_input_is_refused(self, tmp_path):
        model = torch.nn.Linear(2, 2)
        with pytest.raises(LoadError, match="give --batch"):
            made_batch(str(tmp_path), model)
        model.config, model.main_input_name = object(), "input_values"
        with pytest.raises(LoadError, match="no batch can be made for the input 'input_values'"):
            made_batch(str(tmp_path), model)


@pytest.mark.llm
class TestGguf:
    def written(self, path, width=16, words=20, lacking=""):
        gguf = pytest.importorskip("gguf")
        writer = gguf.GGUFWriter(str(path), "llama")
        writer.add_context_length(32)
        writer.add_embedding_length(width)
        writer.add_block_count(1)
        writer.add_feed_forward_length(width)
        writer.add_head_count(2)
        writer.add_head_count_kv(2)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(width // 2)
        writer.add_vocab_size(words)
        shapes = {"token_embd": (words, width), "output": (words, width), "output_norm": (width,)}
        shapes |= {f"blk.0.{name}": (width, width) for name in ("attn_q", "attn_k", "attn_v", "attn_output")}
        shapes |= {f"blk.0.{name}": (width, width) for name in ("ffn_gate", "ffn_up", "ffn_down")}
        shapes |= {"blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,)}
        for name, shape in shapes.items():
            if name != lacking:
                writer.add_tensor(f"{name}.weight", torch.randn(shape).numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def test_a_file_is_a_model_and_gets_a_batch(self, tmp_path):
        path = self.written(tmp_path / "tiny.gguf")
        model = load_model(str(path))
        assert type(model).__name__ == "LlamaForCausalLM" and next(model.parameters()).dtype == torch.float32
        batch, _ = made_batch(str(path), model)
        assert model(**batch).logits.shape == (2, 16, 20)
        assert type(load_model(str(tmp_path))).__name__ == "LlamaForCausalLM"  # alone in its folder
        self.written(tmp_path / "other.gguf")
        with pytest.raises(LoadError, match="holds 2 GGUF files"):
            load_model(str(tmp_path))

    def test_all_of_its_weights_must_be_there(self, tmp_path):
        path = self.written(tmp_path / "tied.gguf", lacking="output")
        model = load_model(str(path))
        assert model.lm_head.weight is model.model.embed_tokens.weight
        path = self.written(tmp_path / "tiny.gguf", lacking="blk.0.ffn_gate")
        with pytest.raises(LoadError, match=r"got 1 not stored \(model\.layers\.0\.mlp\.gate_proj\.weight\)"):
            load_model(str(path))

    def test_what_is_none_is_refused(self, tmp_path):
        with pytest.raises(LoadError, match="no such file"):
            load_model(str(tmp_path / "none.gguf"))
        (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(50))
        pytest.importorskip("gguf")
        with pytest.raises(LoadError, match="could not build it"):
            load_model(str(tmp_path / "bad.gguf"))
