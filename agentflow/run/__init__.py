"""Runs: a run from start to end, and the engine that opens it.

Read ``engine`` (opens runs, runs programs in them), then ``run`` (events, limits, usage and session of one run) and ``entry``
(how a program is entered); beside them ``handle`` (what the host holds), ``reservation`` and ``tenant`` (money), ``asking``
and ``questions`` (people). What a program does within a run is in the rooms ``strand``, ``policy`` and ``bounds``.
"""
