"""The zoo by name: what is known is built, what is not is refused with what would be right."""

from __future__ import annotations

import pytest
from torch import nn

from normgauge.core.errors import InputError
from normgauge.lab.zoo import ZOO, build_network


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpt", {"norm": "batch"}, "layer, rms"),
        ("gpt", {"heads": 5}, "heads=5"),
        ("gpt", {"position": "middle"}, "'pre' or 'post'"),
        ("vit", {"patch": 5}, "patches of 5"),
        ("resnet18", {"stem": "tiny"}, "cifar"),
        ("resnet20", {"depht": 20}, "no option depht; known: "),
        ("resnet19", {}, "known: mlp, resnet18"),
    ],
)
def test_build_refuses(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_network(name, **options)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_name_builds(name: str) -> None:
    assert isinstance(build_network(name), nn.Module)
