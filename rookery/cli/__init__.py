"""The command line: `main` parses, a module per family of verbs does it, `text` says it.

Imports of anything heavy happen inside the verbs.
"""
