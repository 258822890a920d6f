"""Tools for those who work on Rookery; no part of the package."""
