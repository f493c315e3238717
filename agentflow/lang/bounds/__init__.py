"""Upper bounds of the effects of a program, computed from its nodes before it runs: effects, tokens, rounds, memory.

Read ``analysis`` (one program, from nodes to bounds), ``cost`` and ``polynomial`` (the form of a bound), then ``interpret`` (one pass)
with ``nodes``, ``control`` and ``primitives``. The room ``python`` has the tables for functions of Python.
"""
