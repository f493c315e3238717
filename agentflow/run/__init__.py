"""Runs: a run from start to end, and the engine that opens it.

Read ``engine`` (opens runs, runs programs in them), then ``run`` (events, limits, usage and session of one run);
with them ``handle`` (the host's stream and result), ``reservation`` (money) and ``questions`` (people). The rooms ``strand``, ``policy`` and ``bounds`` have the work of a program within a run.
"""
