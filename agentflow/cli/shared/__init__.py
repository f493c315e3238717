"""Shared by the commands: options, exit codes, the terminal, questions to people.

Read ``common`` (exit codes, reading programs, the event loop) and ``options`` (the flow that options describe), then
``terminal`` and ``progress`` (the display while a program runs).
"""
