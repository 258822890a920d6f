"""Algorithms improve a policy; sibling files over the pure functions in `returns`.

`networks` and `distributions` are written over an array namespace `xp` (numpy or jax.numpy), so
that an actor can play in numpy without importing JAX.
"""
