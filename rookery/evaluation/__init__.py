"""Using what was trained: fresh episodes, matches, ladders. Called by the command line, Python and
a server's jobs; everything here plays with fixed weights on seeds that training never uses.
"""
