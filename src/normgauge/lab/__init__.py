"""What demo, experiments and tests are made of.

zoo/       networks and data sets of the demo and the papers
training/  one small training loop
sweep/     many trainings from one file, here or on a cluster
"""
