"""Lang: the workflow language. Text in, coroutine functions out; no I/O and no event loop.

Knows only ``core``. Read ``program`` first: it drives a text through ``reader``, ``analyzer`` and ``linking``. Special
forms are in the room ``forms``, primitives in ``builtins``; ``abi`` is the interface of a run for generated code. The room
``python`` compiles the other surface to the same ``abi``, ``bounds`` computes upper bounds of cost.
"""
