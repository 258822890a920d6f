"""What a learner goes on from, and what others play with.

`store` keeps sets of files at a URI, `checkpoint` makes and checks one atomic thing of them,
`policies` takes weights out of a run's checkpoints and snapshots. Learners write; everyone reads.
"""
