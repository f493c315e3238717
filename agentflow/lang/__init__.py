"""Lang: the workflow language. Text in, coroutine functions out; no I/O and no event loop.

Knows only ``core``. A program passes through :mod:`~agentflow.lang.reader`, :mod:`~agentflow.lang.analyzer`,
:mod:`~agentflow.lang.codegen`; :mod:`agentflow.lang.program` drives it, so start there. Special forms are in ``forms``,
primitives in ``builtins``.
"""
