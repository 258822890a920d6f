"""Sweeps: many runs of one environment, to find what a config should be.

`space` and `text` are the search space and the one way in which it is written; they know no
library that proposes. `proposals` is who proposes: a function of the space and of what is known.
`configs` goes from a point of the space to a run's config and back. `trials` reads a sweep out of
the log, `conductor` asks for what comes next, `carrier` is who carries the runs, `sweep` is what
people hold in their hands.

Another engine takes `Search.sample(ask)` for its own space, `Configs.build` for the config of a
trial, and brings whoever proposes (`proposals.Propose`) or carries with it.
"""
