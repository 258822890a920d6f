"""Contract suites and fakes, for Rookery's own tests and for those of its users.

A suite is a class of tests to subclass; it needs pytest.
"""
