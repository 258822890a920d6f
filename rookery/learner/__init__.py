"""The learner: trains policies from experience and publishes weights.

`loop` is the training loop; `inbox` receives and admits, `credits` bound staleness, `ledger`
counts, `trainer` updates, `transport` is the learner's side of the bus, `bookkeeping` reports,
saves and stops, `build` puts one together, `main` is its process. It does not know the actor.
"""
