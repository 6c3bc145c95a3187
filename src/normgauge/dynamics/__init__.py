"""How a scale-free weight moves: radial gradients, effective learning rates, equilibria, optimizers on the sphere."""
