"""Algorithms improve a policy; sibling files over the pure functions in `returns`.

`ppo` and `impala` each make an objective; `updating` runs the gradient steps of one or of several
at once, and `groups` holds the state of those. `networks` and `distributions` are written over an
array namespace `xp` (numpy or jax.numpy), so that an actor can play in numpy without importing JAX;
`policies` does not need it either.
"""
