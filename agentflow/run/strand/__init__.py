"""Strands: one sequential line of execution of a program, what it may use, and what it asks of the host.

Read ``strand`` (the object that generated code runs on, and how it finds names), ``operations`` (the table of functions that
programs ask of it), ``branches`` (strands beside each other) and ``recovery`` (errors as values), then ``perform`` (how an
effect finds its port). ``budget`` keeps its limits; ``program_compiler`` compiles the programs.
"""
