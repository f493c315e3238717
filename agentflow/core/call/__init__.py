"""The position of code in a run: the context of a call, the ports to its run, and host code that runs there.

Read ``call`` (with the pair of events around work, and the block that host code runs in), then ``run_port`` and
``journal_port``.
"""
