"""The learner trains policies from experience and publishes weights."""
