"""Upper bounds of the effects of a program, computed from its text before it runs: effects, tokens, rounds, memory.

Read ``analysis`` (one program, from text to bounds), ``cost`` and ``polynomial`` (the form of a bound), then ``interpret`` (the value and
the cost of each expression) with ``nodes`` and ``primitives``. The room ``python`` does the same for Python texts.
"""
