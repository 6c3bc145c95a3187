"""The geometry that normalizers give a network.

symmetry/  symmetries(), canonical(): what can be done to the weights without changing the function
hessian/   curvature(): eigenvalues, trace and spectrum of the loss, right on every normalizer
dynamics/  radial gradients, effective learning rates, equilibria; optimizers on the sphere
"""
