"""The actor: steps environments with players in their seats and streams experience.

`loop` is the playing loop; `rollouts/` play, `lineup` says who sits where, `packing` makes
fragments of turns, `transport` is the actor's side of the bus, `build` puts one together, `main` is
its process. It does not know the learner.
"""
