"""Networks with Gaussian noise on their weights: what PAC-Bayes speaks about.

space: a copy whose prediction depends on listed tensors only; posterior: the noise and its distance to the prior;
risk: the error with noise, by draws; descent: mean and noise by gradient descent on the bound.
"""
