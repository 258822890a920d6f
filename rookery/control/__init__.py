"""What should run: the log of commands and events, its fold, and who carries it out.

`home` is where runs live, `run_state` the fold (without I/O), `controller` makes a launcher match
one run's desired state, `fleet` carries many, `queries` and `diagnosis` (by `evidence`) tell how
things stand.
"""
