"""Curvature of the loss: Hessian-vector products, eigenvalues, density, sharpness without a gauge."""

from normgauge.hessian.lanczos import eigenvalues
from normgauge.hessian.landscape import Landscape, Shift, covariate_shift, landscape
from normgauge.hessian.margins import Margins, Noisy, margins, noise_accuracy
from normgauge.hessian.product import Product, dense_hessian, scale_free
from normgauge.hessian.stochastic import estimate_trace, spectral_density
from normgauge.hessian.survey import curvature
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
