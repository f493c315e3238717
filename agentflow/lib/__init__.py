"""Lib: tools that several rooms share and that know nothing of workflows. Files, queues, redaction; text
and JSON Schema have rooms of their own.

Read what you need: ``atomic``, ``file_writer`` and ``private_files`` write files, ``start_throttle`` and ``wait_queue`` hold work back,
``redact`` takes out secrets, ``signature`` reads those of host functions.

A module here may import the plain data types of ``core``; ``core`` never imports one of these.
"""
