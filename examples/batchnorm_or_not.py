"""The same MLP with and without BatchNorm, trained on digits and measured.

What to look at: P_w, the product of the spectral norms. Without BatchNorm it is a bound, if a loose one. With
BatchNorm it lies below a slope the network really has: it leaves out the division by σ, and the scale of the weights
before a BatchNorm means nothing. The proved bounds and the slopes found can be compared between the two networks.
"""

from __future__ import annotations

import math

import torch

import normgauge as ng
from normgauge.lab.training import model_accuracy, train
from normgauge.lab.zoo import digits, mlp

SIZES = (64, 48, 48, 48, 10)


def main() -> None:
    """Train two networks and print one line for each scope."""
    train_set, test_set = digits("train"), digits("test")
    for norm in (None, "batch"):
        torch.manual_seed(0)
        model = mlp(SIZES, norm=norm)
        train(model, train_set, epochs=15, lr=3e-3)
        point, everywhere = ng.readings(model, test_set.inputs[:100], ("point", "global"))
        print(f"norm={norm}: test accuracy {100 * model_accuracy(model, test_set):.1f} %")
        product = 10 ** everywhere.published["log10_P_w"]
        side = "above" if product > math.exp(everywhere.log_lower) else "BELOW"
        print(f"  product of spectral norms P_w: {product:.1f}, {side} the steepest slope found")
        for reading in (point, everywhere):
            where = "at 100 test images" if reading is point else "everywhere"
            lower, upper = math.exp(reading.log_lower), math.exp(reading.log_upper)
            print(f"  steepest slope {where:19} between {lower:6.1f} (found) and {upper:8.1f} ({reading.evidence})")


if __name__ == "__main__":
    main()
