"""The control plane: one command log, the state of runs folded from it, and who makes it true."""
