"""Python workflows: typed functions as tasks and programs. Read ``python_functions``, then ``python`` (a call of one) and ``line`` (the sequence
of its effects)."""
