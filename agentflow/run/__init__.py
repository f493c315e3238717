"""Runs: a run from start to end, and the engine that opens it.

Read ``engine`` (opens runs, runs programs in them), then ``run`` (events, limits, usage and session of one run);
beside them ``handle`` (the host's stream and result), ``reservation`` (money) and ``questions`` (people). What a program does within a run is in the rooms ``strand``, ``policy`` and ``bounds``.
"""
