"""Workflow texts in a subset of Python: read, checked, and rebuilt as code for the same strands as S-expressions.

Read ``compiling`` first, then ``statements``, ``expressions`` and ``calls``. The parsed tree never reaches Python's
compiler: each allowed kind of node has a rule that writes new nodes (in these three), and a node without a rule is refused.
The code written so calls only members of :class:`~agentflow.lang.abi.Runtime` and functions of this package, which look at
the exact types of values (in ``values``, ``methods`` and ``builtins``): no attribute is ever read from a value.
"""
