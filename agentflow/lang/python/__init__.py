"""Workflow texts in a subset of Python: read, checked, and rebuilt as code for the same strands as S-expressions.

Start in ``compiling.py``. The parsed tree never reaches Python's compiler: each kind of node that is allowed has a rule
that writes new nodes (``statements.py``, ``expressions.py``, ``calls.py``), and whatever has no rule is refused. The code
written so calls only members of :class:`~agentflow.lang.abi.Runtime` and functions of this package, which look at the exact
types of values (``values.py``, ``methods.py``, ``builtins.py``): no attribute is ever read from a value.
"""
