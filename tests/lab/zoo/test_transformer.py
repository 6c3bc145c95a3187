"""The transformers: causal, with textbook attention, normalized before or after each branch."""

from __future__ import annotations

import pytest
import torch

from normgauge.core.errors import InputError
from normgauge.lab.zoo import build_network, gpt, vit
from tests.lab.zoo.networks import train_steps


@pytest.mark.parametrize("norm", ["layer", "rms", None])
@pytest.mark.parametrize("position", ["pre", "post"])
def test_transformers(norm: str | None, position: str) -> None:
    tokens = torch.randint(11, (3, 9))
    language = build_network("gpt", vocab=11, width=16, context=10, norm=norm, position=position, dropout=0.1)
    assert language(tokens[:, :8]).shape == (3, 8, 11)
    train_steps(language, tokens[:, :8], tokens[:, 1:])
    vision = build_network("vit", image=8, patch=2, channels=1, width=16, norm=norm, position=position)
    assert vision(torch.randn(2, 1, 8, 8)).shape == (2, 10)
    train_steps(vision, torch.randn(4, 1, 8, 8), torch.arange(4))


def test_gpt_is_causal_and_sees_its_past() -> None:
    model = gpt(width=32).double().eval()
    tokens = torch.randint(65, (1, 20))
    other = tokens.clone()
    other[0, 12] = (other[0, 12] + 1) % 65
    with torch.no_grad():
        moved = (model(tokens) - model(other)).abs().amax(-1)[0]
    assert not moved[:12].any()
    assert (moved[12:] > 0).all()


def test_attention_is_the_textbook_formula() -> None:
    attn = vit(width=8, heads=2).double().blocks[0].attn
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    heads = []
    for h in range(2):
        rows = slice(4 * h, 4 * h + 4)
        q, k, v = (part(x)[0, :, rows] for part in (attn.query, attn.key, attn.value))
        heads.append(torch.softmax(q @ k.T / 2.0, dim=-1) @ v)
    torch.testing.assert_close(attn(x)[0], attn.out(torch.cat(heads, dim=-1)))


def test_post_norm_is_the_last_thing_before_the_head() -> None:
    model = vit(width=16, position="post").eval()
    out = model.norm(model.blocks(3 * torch.randn(2, 5, 16)))
    torch.testing.assert_close(out.var(-1, correction=0), torch.ones(2, 5), atol=1e-2, rtol=0)


def test_inputs_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="context of 64"):
        gpt()(torch.zeros(1, 65, dtype=torch.int64))
    with pytest.raises(InputError, match="32 x 32"):
        vit()(torch.zeros(1, 3, 28, 28))
