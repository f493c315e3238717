"""Upper bounds of what a program does, computed from its text before it runs: effects, tokens, rounds, memory.

Read ``analysis`` (one program, from text to bounds), ``cost`` and ``polynomial`` (what a bound is), then ``interpret`` (the value and
the cost of each expression) with ``primitives`` and ``operations``. The room ``python`` does the same for Python texts.
"""
