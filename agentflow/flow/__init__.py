"""Python workflows: typed functions as tasks and programs. Read ``python_functions`` (with ``task_options``; ``unbound`` and ``methods``
for those without a flow or of an object), then ``python`` (a call of one) and ``line`` (the sequence of its effects)."""
