"""Tools that several rooms share and that know nothing of workflows: JSON Schema, tokens, terminal text, redaction, docstrings.

A module here may import core's plain data types, and core never imports a module here.
"""
