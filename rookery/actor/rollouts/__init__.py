"""Rollouts: each plays one fragment's worth of steps, going on where it left off
(`actor.loop.Rollout`).

One seat or a table of several; stepped from Python or one compiled call; or read from a recording.
"""
