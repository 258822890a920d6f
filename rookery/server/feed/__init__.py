"""What the server reads: the control log and every run's metrics, kept as far as they are asked
for.
"""
