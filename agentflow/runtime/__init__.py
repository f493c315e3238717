"""Runtime: runs compiled programs. Strands, branches, limits, effects and the events of a run.

Connects the language with the ports, so it may import ``lang`` and the other rooms below it; the components that carry
out effects are passed in. Start with :mod:`agentflow.runtime.engine`, which opens runs, then
:mod:`agentflow.runtime.strand`, what generated code runs on, and :mod:`agentflow.runtime.perform`, which carries out
effects.
"""
