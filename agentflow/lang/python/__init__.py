"""Workflow texts in a subset of Python: read, checked, and given their meaning as nodes of the kernel (:mod:`agentflow.lang.kernel`).

Read ``compiling`` first, then ``lowering``, ``statements``, ``expressions`` and ``calls``. The parsed tree never reaches Python's
compiler: each allowed kind of node has a rule that checks it and gives nodes of the kernel (in these), and a node without a rule is refused.
The code that is generated from those calls only members of :class:`~agentflow.lang.abi.Runtime` and functions of this package, which look at
the exact types of values (in ``values``, ``methods`` and ``builtins``): no attribute is ever read from a value.
"""
