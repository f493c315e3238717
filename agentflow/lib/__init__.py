"""Lib: tools that several rooms share and that do not depend on workflows. Files, queues, redaction; text and JSON Schema
have their own rooms.

Read the modules you need: ``atomic`` and ``file_writer`` write files, ``event_loop`` holds work back, ``redact`` removes secrets, ``signature`` reads the signatures of host functions.

A module here may import the plain data types of ``core``; ``core`` never imports one of these.
"""
