"""Lang: the workflow language. Text in, coroutine functions out; no I/O and no event loop.

Knows only ``core``. Read ``program`` first: it drives a text through ``reader``, ``analyzer`` and the room ``kernel``, which makes code of
both surfaces. Special forms are in the room ``forms``, primitives in ``builtins``; ``abi`` is the interface of a run for generated code. The
room ``python`` reads the other surface, ``bounds`` computes upper bounds of cost.
"""
