"""A bus on Ray: one host keeps a run's topics, and workers on any node reach it by calls.

The host is a Ray actor over an embedded bus: what it has acknowledged lies in its file, whoever
published it and whatever becomes of them. `host` is that actor, `line` how a worker calls it and
waits while it is away, `direct` the socket that carries the calls where it may, `client` the
contract of the bus over such a line, `calls` what crosses: bytes of our own, never a pickled
object. A worker on the host's own node opens the file instead.
"""
