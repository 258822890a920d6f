"""Algorithms improve policies: one file each, over shared networks, distributions and returns.

Pure functions in JAX; the learner's trainer is the only caller. Actors use `networks` in numpy.
"""
