"""Durable runs: what is recorded, so that a run continues after its process has died, and is not paid for twice.

Read ``journal`` (an effect is answered from its record, or carried out and recorded) and ``journaled`` (which effects are),
``records`` and ``parking`` (those of one run, and its waits), then ``runs`` (start, resume, cancel), ``live_runs`` (those of this
process) and ``handle``. ``worker``, ``takeover``, ``branch_runs`` and ``remote`` are about many processes; ``generations``, ``deriving``
and ``plan`` about a run that is changed. How values are written is in the room ``values``.
"""
