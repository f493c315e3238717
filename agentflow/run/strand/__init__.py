"""Strands: one sequential line of execution of a program, its budget, and its requests to the host.

Read ``strand`` (the object that generated code runs on, and how it finds names), ``operations`` (the table of functions that
programs ask of it), ``branches`` (concurrent strands) and ``recovery`` (errors as values), then ``perform`` (how an
effect finds its port). ``budget`` keeps its limits; ``program_compiler`` compiles the programs.
"""
