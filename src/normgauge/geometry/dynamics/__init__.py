"""How a scale-free weight moves: radial gradients, effective learning rates, equilibria, optimizers on the sphere.

motion: what one step does to a vector, and the radial gradient that ε leaves, predicted.
equilibrium: where decay and turning balance, for SGD, momentum, AdamW and Adam.
sphere: angles, walks and Cho and Lee's metric; information: Fisher's, along the gauge and across it.
optimizer: descent on the sphere.

Groups of scale-free vectors are given as `ScaleFree`, by hand or from ``normgauge.geometry.symmetry``.
"""

from normgauge.geometry.dynamics.equilibrium import (
    CoupledEquilibrium,
    Equilibrium,
    adam_equilibrium,
    adamw_equilibrium,
    sgd_equilibrium,
)
from normgauge.geometry.dynamics.information import (
    Metrics,
    compare_metrics,
    fisher,
    radial_directions,
    scores,
    tangent_directions,
)
from normgauge.geometry.dynamics.motion import (
    Motion,
    RadialIdentity,
    angular_update,
    effective_lr,
    gradients,
    measure,
    norm_growth_residual,
    radial_part,
    scale_free_gradient,
    snapshot,
    split_gradient,
)
from normgauge.geometry.dynamics.optimizer import SphereAdam, SphereSGD
from normgauge.geometry.dynamics.sphere import angle, distance, inner, quotient_distance, riemannian_gradient
from normgauge.geometry.symmetry.groups import ScaleFree, spread_vectors, vectors

__all__ = [
    "CoupledEquilibrium",
    "Equilibrium",
    "Metrics",
    "Motion",
    "RadialIdentity",
    "ScaleFree",
    "SphereAdam",
    "SphereSGD",
    "adam_equilibrium",
    "adamw_equilibrium",
    "angle",
    "angular_update",
    "compare_metrics",
    "distance",
    "effective_lr",
    "fisher",
    "gradients",
    "inner",
    "measure",
    "norm_growth_residual",
    "quotient_distance",
    "radial_directions",
    "radial_part",
    "riemannian_gradient",
    "scale_free_gradient",
    "scores",
    "sgd_equilibrium",
    "snapshot",
    "split_gradient",
    "spread_vectors",
    "tangent_directions",
    "vectors",
]
