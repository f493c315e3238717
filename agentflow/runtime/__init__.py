"""Runtime: runs compiled programs. Strands, branches, limits, effects and the events of a run.

Joins the language to the ports, so it may import ``lang`` and the other rooms below it, but is handed the components it
runs things with. Start with :mod:`agentflow.runtime.engine`, which opens runs, then :mod:`agentflow.runtime.strand`,
what generated code runs on, and :mod:`agentflow.runtime.perform`, which carries out effects.
"""
