"""Durable runs: the records that let a run continue after its process has died, without paying for a call twice.

Read ``journal`` (an effect is answered from its record, or carried out and recorded) and ``run_records`` (those of one run,
and its waits), then ``runs`` (start, resume, cancel), ``live_runs`` (those of this process) and ``handle``. ``worker``, ``takeover``, ``branch_runs`` and ``remote`` concern several processes;
``generations``, ``deriving`` and ``plan`` concern changed runs. The room ``values`` says how values are stored.
"""
