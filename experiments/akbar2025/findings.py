"""What the committed results show, one sentence a figure; not for results of another training."""

from __future__ import annotations

FINDINGS: dict[str, str] = {
    "fig5.1": "With BatchNorm the loss has no scale: its contours are rays, w may have any length",
    "fig8.1": "‖w‖ holds only where η ≪ ‖w₀‖²; BatchNorm is second to 10 % of the loss, first to 1 %",
    "fig8.2": "Raw margins are smaller with BatchNorm, distances equal; raw noise shows the scale",
    "gradients": "Gradients spike more without BatchNorm at η = 0.1 and 0.2, with it at 0.02 and 0.5",
    "badinit": "BatchNorm trains from weights × 10⁻⁵ to 1000; × 10⁻³ to 100 if the head is scaled too",
    "stable": "Largest stable learning rate: 0.59 with BatchNorm, 0.62 without; at most doubled",
    "growth": "Flow keeps every ‖w‖; descent grows Σ‖w‖² by 9.6 % at η = 0.2, 0.016 % at 0.005",
    "edge": "λ_max settles at the optimizer's limit, with BatchNorm and without",
    "saddle": "Beside the noise of the samples BatchNorm's does not help to leave a saddle",
    "noise": "BatchNorm's noise at batch 32: a fifth of the samples' at first, four fifths later",
    "depth": "BatchNorm with ReLU multiplies gradients by 1.21 a layer, He's initialization by 1.00",
    "shift": "Inputs × 0.1 cost 16 points with BatchNorm's running statistics, 9 without BatchNorm",
    "combined": "Without dropout BatchNorm tests 1 to 7 points lower; dropout closes the gap",
}
