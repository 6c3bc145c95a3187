"""The experiments of Akbar, section 8, with what ours gave; the trainings are in experiments/akbar2025.

Figures stated here are means over ten seeds at the base setting of the experiment named with a claim, which varies the
settings the paper does not give; the word for each published number is in its README.
"""

from __future__ import annotations

from normgauge.core.claim import Verdict
from normgauge.ledger.claim import Family

claims = Family("A", "Akbar")

claims.trained(
    "exp1",
    "section 8, experiment 1 (and 5.2)",
    Verdict.WRONG,
    "A linear classifier with batch norm keeps ‖w‖ within 1 % of its start (the text breaks off at '< 1')",
    "It depends on η/‖w₀‖²: +290 % from 0.1, +2.1 % from 1, +0.0003 % from 10 (η = 0.1, 500 steps); 12 % of all runs "
    "keep it within 1 % and find the direction.",
    "akbar2025/fig8.1",
)
claims.trained(
    "exp1.path",
    "section 8, experiment 1 (and 5.2)",
    Verdict.WRONG,
    "Whatever the initial norm, batch norm turns w straight to the right direction on a circle",
    "At a fixed rate the speed is η/‖w‖²: from length 10 the direction is still 88° off after 500 steps at η = 0.1. "
    "With η ≤ ‖w₀‖² the path goes straight in 85 % of runs, in 99 % with γ fixed.",
    "akbar2025/fig8.1",
)
claims.trained(
    "exp1.plain",
    "section 8, experiment 1",
    Verdict.UNSUPPORTED,
    "Without batch norm w spirals outwards if it starts small, and inwards if it starts large",
    "So it begins in all runs: +3776 % from 0.1, −41 % from 10 (η = 0.1, 500 steps). There is no optimum norm to "
    "reach: the logistic loss falls for ever, +68 % from step 500 to 5000 (η = 1).",
    "akbar2025/fig8.1",
)
claims.trained(
    "exp2.loss",
    "section 8, experiment 2",
    Verdict.UNSUPPORTED,
    "On a small regression the network with batch norm converges in under 100 iterations, the plain one far later",
    "Loss after 100 steps 0.076 against 0.071; 10 % of the start after 63 steps against 42, 1 % after 642 against "
    "1860: later at first, earlier in the end.",
    "akbar2025/fig8.1",
)
claims.trained(
    "exp2.max",
    "section 8, experiment 2",
    Verdict.WRONG,
    "The largest Hessian eigenvalue is 5 times smaller with batch norm",
    "10.11 ± 0.06 with, 10.09 ± 0.06 without: both sit at 2/η, the edge of stability; ratio 1.00 ± 0.01. A plain "
    "network at a quarter of the rate has 38.9.",
    "akbar2025/edge",
)
claims.trained(
    "exp2.kappa",
    "section 8, experiment 2",
    Verdict.WRONG,
    "The condition number, zeros left out, is about 20 with batch norm and 200 without",
    "It is one over the cut-off: 6.4e5 against 6.0e5 at 1e-6, 979 against 970 at 1e-3, 97 against 96 at 1e-2; λ_min is "
    "negative in all runs.",
    "akbar2025/fig8.1",
)
claims.trained(
    "exp2.zeros",
    "section 8, experiment 2",
    Verdict.WRONG,
    "The spectrum with batch norm has many zeros from its invariances",
    "None exactly: the runs do not end at critical points, and there the invariances give no zeros (A.Hzero).",
    "akbar2025/fig8.1",
)
claims.trained(
    "exp2.plain",
    "section 8, experiment 2",
    Verdict.UNSUPPORTED,
    "At the same learning rate the plain network oscillates and needs a smaller one to converge",
    "The loss rises in 47 % of steps with batch norm and 41 % without at one rate; the largest stable rates are 0.59 "
    "and 0.62.",
    "akbar2025/stable",
)
claims.trained(
    "exp2.gradients",
    "section 8, experiment 2",
    Verdict.UNSUPPORTED,
    "With batch norm the gradient norm stays even through training, without it there is a spike",
    "Peaks over the median around: 15 with and 90 without at η = 0.2, 25 and 2 at 0.02. The norm is a choice of scale "
    "under batch norm.",
    "akbar2025/gradients",
)
claims.trained(
    "exp3.margin",
    "section 8, experiment 3",
    Verdict.GAUGE,
    "The mean margin on the training set is 1.8 with batch norm and 1.2 without",
    "Ours: 3.24 against 4.06 at zero error, 7.99 against 10.07 after 300 epochs, the other way; as distances to the "
    "boundary 1.22 against 1.20.",
    "akbar2025/fig8.2",
)
claims.trained(
    "exp3.accuracy",
    "section 8, experiment 3",
    Verdict.UNSUPPORTED,
    "Both networks fit the training set, and batch norm tests better (the text breaks off at '100')",
    "Both fit. Test accuracy after 300 epochs: 88.4 against 94.2 % on one task, 84.3 against 83.6 % on another.",
    "akbar2025/fig8.2",
)
claims.trained(
    "exp3.noise",
    "section 8, experiment 3",
    Verdict.GAUGE,
    "The network with batch norm bears more Gaussian noise on its parameters, so that its minimum is flatter",
    "Noise of a fixed size depends on the length of the weights (A.7.2.noise): 0.078 becomes 0.007 or 0.24 for the "
    "same function. In proportion to the weights batch norm bears less, 0.26 against 0.29.",
    "akbar2025/fig8.2",
)
claims.trained(
    "exp4.small",
    "section 8, experiment 4",
    Verdict.WRONG,
    "A five-layer network with batch norm trains from weights however small, after a slight delay",
    "Down to × 1e-5 with the head left alone, 1e-3 with the head; × 1e-6 in one of ten: σ²/(σ²+ε) is 3e-7 there, ε "
    "breaks the invariance. With ε = 1e-10 all train.",
    "akbar2025/badinit",
)
claims.trained(
    "exp4.large",
    "section 8, experiment 4",
    Verdict.WRONG,
    "A five-layer network with batch norm trains from weights however large",
    "Up to × 1000 if the head, which is not normalized, is left out, in 8 times the steps and not at a tenth of the "
    "rate; with the head up to × 100.",
    "akbar2025/badinit",
)
claims.trained(
    "exp4.plain",
    "section 8, experiment 4",
    Verdict.UNSUPPORTED,
    "Without batch norm such starts end in NaN or take very long",
    "98 % of such starts fail in 2000 steps; from large weights 73 % end in NaN in float32, 17 % in float64.",
    "akbar2025/badinit",
)
claims.trained(
    "fig5.1",
    "figure 5.1",
    Verdict.HOLDS,
    "With batch norm the contours of the loss are rays from the origin: a flat valley along the scale",
    "Exact at ε = 0 (A.4.sphere); the figure is announced and not printed in the paper, ours is drawn.",
    "akbar2025/fig5.1",
)
claims.trained(
    "fig8.1",
    "figure 8.1",
    Verdict.UNSUPPORTED,
    "Paths of w on a circle with batch norm, and a loss that falls faster",
    "Announced and not printed; see A.exp1 and A.exp2.loss for what ours shows.",
    "akbar2025/fig8.1",
)
claims.trained(
    "fig8.2",
    "figure 8.2",
    Verdict.UNSUPPORTED,
    "A margin histogram further right and narrower, and accuracy that falls later under noise, with batch norm",
    "Announced and not printed; see A.exp3.margin and A.exp3.noise for what ours shows.",
    "akbar2025/fig8.2",
)
claims.trained(
    "8.summary",
    "section 8, summary",
    Verdict.UNSUPPORTED,
    "The experiments confirm reduced curvature, better conditioning and larger margins with batch norm",
    "Of these none was reproduced: λ_max is the same, κ is one over the cut-off, raw margins are smaller. Bad starts "
    "are what batch norm does help with.",
    "akbar2025/edge",
)
