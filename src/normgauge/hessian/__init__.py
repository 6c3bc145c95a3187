"""Curvature of the loss: Hessian-vector products, eigenvalues, density, sharpness without a gauge."""

from normgauge.hessian.dense import dense_hessian
from normgauge.hessian.lanczos import eigenvalues
from normgauge.hessian.landscape import Landscape, landscape
from normgauge.hessian.margins import Margins, margins
from normgauge.hessian.noise import Noisy, noise_accuracy
from normgauge.hessian.product import Product
from normgauge.hessian.scale_free import scale_free
from normgauge.hessian.shift import Shift, covariate_shift
from normgauge.hessian.slq import spectral_density
from normgauge.hessian.survey import curvature
from normgauge.hessian.trace import estimate_trace
from normgauge.hessian.tracker import Tracker

__all__ = [
    "Landscape",
    "Margins",
    "Noisy",
    "Product",
    "Shift",
    "Tracker",
    "covariate_shift",
    "curvature",
    "dense_hessian",
    "eigenvalues",
    "estimate_trace",
    "landscape",
    "margins",
    "noise_accuracy",
    "scale_free",
    "spectral_density",
]
