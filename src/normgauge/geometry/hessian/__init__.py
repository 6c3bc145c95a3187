"""Curvature of the loss: Hessian-vector products, eigenvalues, density, sharpness without a gauge."""

from normgauge.geometry.hessian.lanczos import eigenvalues
from normgauge.geometry.hessian.landscape import Landscape, Shift, covariate_shift, landscape
from normgauge.geometry.hessian.margins import Margins, Noisy, margins, noise_accuracy
from normgauge.geometry.hessian.product import Product, dense_hessian, scale_free
from normgauge.geometry.hessian.stochastic import estimate_trace, spectral_density
from normgauge.geometry.hessian.survey import curvature
from normgauge.geometry.hessian.tracker import Tracker

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
