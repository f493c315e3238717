"""Lib: tools that several rooms share and that know nothing of workflows. JSON Schema, tokens, terminal text,
redaction.

A module here may import the plain data types of ``core``; ``core`` never imports one of these.
"""
