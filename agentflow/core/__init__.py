"""Core: the data types, errors, events and ports that all rooms share. No I/O.

Knows no other room; everything else may import it. Start with :mod:`agentflow.core.ports.ports`, the contracts between the
rooms, then :mod:`agentflow.core.call.call` (where in a run something happens) and :mod:`agentflow.core.events.events`.
"""
