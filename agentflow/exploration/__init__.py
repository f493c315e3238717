"""Runs a program many times without models, tools or waits, and finds the answers that break it.

``answer_search.py`` decides the next answers to try, and ``rehearsal.py`` runs the program once. Everything down to the ports is real
(compiler, tasks, tool registry, system tools); the ports return the chosen answers. ``outcomes.py`` generates values from
schemas and the constants of the program, ``findings.py`` describes the results. Nothing here opens a file, a socket or a
process.
"""
