"""What every worker's process shares, whichever worker it is and whoever placed it.

`place` says where its run lives, `policies` what the run's seats mean for its policies, `process`
how a process begins, stops and reports its own end, `xla` how JAX is set up. `actor`, `learner` and
`launchers` lean on it; it knows neither the home nor the controller.
"""

from __future__ import annotations

from dataclasses import dataclass

FENCED = 75  # exit code of a learner whose run another one took over
LEFT_ALONE = 76  # exit code of a learner whose crew has lost another
HUNG = 71  # exit code of a worker whose environment hung
NICENESS = "ROOKERY_NICENESS"  # how far a worker steps back behind its server; nothing: not at all
LIFELINE = "ROOKERY_LIFELINE"  # "stdin": the worker ends when its standard input closes

# A second thread makes small matrices slower and takes the core of another worker.
ONE_BLAS_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class WorkerId:
    """One life of one worker."""

    kind: str  # actor, learner, inline
    index: int
    incarnation: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.index}.{self.incarnation}"
