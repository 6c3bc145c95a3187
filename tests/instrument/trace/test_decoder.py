"""What a decoder is given beside its encoder decides the number: it is told, and asked for where it is missing."""

from __future__ import annotations

import pytest
import torch

from normgauge import gauge
from normgauge.core.errors import InputError
from normgauge.loading.made_batch import made_batch

T5 = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 30}
BART = {
    "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 16, "vocab_size": 30, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 1, "forced_eos_token_id": 1, "decoder_start_token_id": 2,
}  # fmt: skip
IDS = torch.tensor([[4, 5, 6], [7, 8, 9]])


def built(kind: str):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    family = kind.removesuffix("Model").removesuffix("MT").removesuffix("ForConditionalGeneration")
    options = {**T5, "decoder_start_token_id": 0} if family == "T5" else BART
    return getattr(transformers, kind)(getattr(transformers, f"{family}Config")(**options)).eval()


@pytest.mark.llm
@pytest.mark.parametrize("kind", ["T5ForConditionalGeneration", "MarianMTModel"])
class TestDecoder:
    @pytest.mark.parametrize("batch", [IDS, {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}])
    def test_without_an_input_of_its_own_it_is_asked_for_in_a_sentence(self, kind, batch):
        model = built(kind)
        with pytest.raises(InputError) as caught:
            gauge(model, batch)
        start = model.config.decoder_start_token_id
        given = "input_ids and attention_mask" if isinstance(batch, dict) else "input_ids"
        assert str(caught.value) == (
            f"batch: expected decoder_input_ids for the model's decoder too, got {given} alone; its output starts "
            f"behind token {start}: torch.full((samples, 1), {start})"
        )
        found = gauge(model, {"input_ids": IDS, "decoder_input_ids": torch.full((2, 1), start)})
        assert f"decoder_input_ids (2x1, the first {start}): with others" in " ".join(found.notes)

    def test_other_mistakes_are_still_the_models_own(self, kind):
        with pytest.raises(InputError, match="the model's forward raised"):
            gauge(built(kind), {"input_ids": IDS, "decoder_input_ids": IDS + 99})

    def test_of_a_made_batch_it_is_told(self, kind, tmp_path):
        model = built(kind)
        batch, said = made_batch(str(tmp_path), model)
        start, own = model.config.decoder_start_token_id, batch["decoder_input_ids"]
        assert own[:, 0].tolist() == [start] * 2 and torch.equal(own[:, 1:], batch["input_ids"][:, :-1])
        assert f"the same for the decoder behind its start token {start}" in said
        notes = " ".join(gauge(model, batch, effort="quick", search=False).notes)
        first = ", ".join(str(int(token)) for token in own[0, :4])
        assert f"the decoder was given decoder_input_ids (2x{own.shape[1]}, the first {first}, …)" in notes


@pytest.mark.llm
def test_what_a_model_makes_itself_is_told():
    model = built("BartModel")
    notes = gauge(model, IDS).notes
    assert "no decoder_input_ids were given: the model makes its decoder's input of what its encoder is given" in notes
    with pytest.raises(InputError, match="the model's forward raised IndexError"):
        gauge(model, IDS + 99)
    plain = torch.nn.Linear(3, 3)
    assert not any("decoder" in note for note in gauge(plain, torch.ones(1, 3)).notes)
