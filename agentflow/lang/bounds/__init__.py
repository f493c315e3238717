"""Upper bounds of what a program does, computed from its text before it runs: effects, tokens, rounds, memory.

Read ``analysis`` (one program, from text to bounds), ``cost`` and ``polynomial`` (what a bound is), then ``interpret`` (the value and
the cost of each expression) with ``nodes`` and ``primitives``. The room ``python`` does the same for Python texts.
"""
