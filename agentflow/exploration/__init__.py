"""Runs a program again and again without models, tools and time, and finds which of their answers break it.

``search.py`` decides what to try next, ``rehearsal.py`` runs the program once: it is real (compiler, tasks, tool registry, system
tools) down to the ports, and behind those stands whatever was chosen. ``outcomes.py`` makes values from schemas and the constants
of the program, ``findings.py`` says what came of it. Nothing here opens a file, a socket or a process.
"""
