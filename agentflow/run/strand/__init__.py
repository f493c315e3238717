"""Strands: one sequential line of execution of a program, what it may use, and what it asks of the host.

Read ``strand`` (the ``rt`` of generated code), ``operations`` (the table of what programs ask of it), ``branches`` (strands
beside each other) and ``recovery`` (errors as values), then ``naming`` and ``perform`` (how an effect finds its port). ``budget``,
``permits`` and ``memory`` keep its limits; ``program_compiler`` compiles what it is to run.
"""
