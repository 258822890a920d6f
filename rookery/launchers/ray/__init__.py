"""Workers as actors of a Ray cluster: the same config, the same semantics, on many nodes.

    owner (a terminal, a server)          driver, its child              nodes of the cluster
    launcher  --- link ------------->     driver  --- Ray ---------->    worker, one a life; host

The owner imports nothing of Ray and outlives its death: a child process of its own, the driver,
holds the line to the cluster, places workers and the host of each run's bus, and looks at them
about every second. A worker is one Ray actor for each of its lives, never restarted by Ray: when to
start another one is the controller's to say, as on every launcher. What a driver placed ends with
it, and it ends with its owner.
"""
