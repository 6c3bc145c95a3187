"""A network that does not train, what `advise` says about it, and the same training after following it.

Twenty layers without a normalizer and with small weights: every layer draws the samples closer together, until the
output is the same for all of them. The advice names the layers; `insert_norm` puts normalizers behind them.
"""

from __future__ import annotations

import torch
from torch import nn

import normgauge as ng
from normgauge.advice import insert_norm
from normgauge.lab.training import model_accuracy, train
from normgauge.lab.zoo import digits, mlp


def small_weights(seed: int = 0) -> nn.Module:
    """A plain network whose weights are half of what they should be."""
    torch.manual_seed(seed)
    model = mlp((64, *[64] * 20, 10))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
            with torch.no_grad():
                module.weight.mul_(0.5)
    return model


def main() -> None:
    """Advise, follow, compare; then ask what one of the new normalizers is for."""
    torch.set_num_threads(1)
    model, batch = small_weights(), digits("train", limit=64).inputs
    advice = ng.advise(model, batch, facts=False)
    print(advice)
    fix = advice.problems[0].fix
    assert fix is not None
    mended = insert_norm(model, fix.places, fix.kind)
    for name, network in (("as it is", model), ("as advised", mended)):
        train(network, digits("train"), epochs=8, lr=1e-3, seed=0)
        print(f"accuracy after 8 epochs, {name}: {model_accuracy(network, digits('test')):.2f}")
    asked = ng.what_if(mended, batch[:8], scope="point", search=False, balance=False)
    first = f"{fix.places[0]}.norm"
    print(f"largest slope at the samples: 10^{asked.reading.log10_lower:.1f}", end=", ")
    print(f"without {first} and all else the same: 10^{asked.without(first).reading.log10_lower:.1f}")


if __name__ == "__main__":
    main()
