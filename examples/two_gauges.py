"""One function, two sets of weights: three numbers move, one stays.

Two rescalings leave every output of `net.py` as it is. Row c of the linear map before BatchNorm, with the running
statistics, is multiplied by t_c. Row c of the linear map before a ReLU is multiplied by t_c, and column c of the next
one divided by it. The published products and the folded bound follow the weights; the balanced bound follows the
function.
"""

from __future__ import annotations

import copy

import torch
from net import Net, batch, build

import normgauge as ng


def rescaled(model: Net, decades: float) -> Net:
    """A copy with other weights and the same function; log10 t_c is drawn from [−decades/2, decades/2]."""
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)

    def factors(count: int) -> torch.Tensor:
        return 10 ** (decades * (torch.rand(count, generator=generator, dtype=torch.float64) - 0.5))

    with torch.no_grad():
        t = factors(16) * 10 ** (decades / 2)  # a smaller variance would sink below ε
        for tensor in (twin.stem.weight, twin.stem.bias, twin.bn.running_mean):
            tensor.mul_(t.reshape(-1, *[1] * (tensor.ndim - 1)))
        twin.bn.running_var.copy_(t**2 * (twin.bn.running_var + twin.bn.eps) - twin.bn.eps)
        t = factors(32)
        twin.up.weight.mul_(t[:, None])
        twin.up.bias.mul_(t)
        twin.down.weight.div_(t[None])
    return twin


def main() -> None:
    """Measure the network and two rescaled copies."""
    model, x = build().double(), batch().double()
    with torch.no_grad():
        before = model(x)
    print("decades  largest change   log10:   P_w  prod 1/sigma  folded  balanced   upper")
    for decades in (0, 3, 6):
        twin = rescaled(model, decades)
        with torch.no_grad():
            change = float((twin(x) - before).abs().max())
        reading = ng.gauge(twin, x, scope="global", search=False)
        published = reading.published
        print(
            f"{decades:7} {change:15.1e} {published['log10_P_w']:14.2f}"
            f"{published['log10_prod_inv_sigma']['rms']:14.2f}"
            f"{reading.log10_folded:8.2f}{reading.log10_balanced:10.3f}{reading.log10_upper:8.3f}"
        )


if __name__ == "__main__":
    main()
