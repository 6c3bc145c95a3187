"""Curvature of the loss: Hessian-vector products, eigenvalues, density, sharpness without a gauge."""
