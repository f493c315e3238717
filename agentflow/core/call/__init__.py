"""The position of code in a run: the context of a call, the ports to its run, and host code that runs there.

Read ``call`` and ``scope`` (a pair of events around work), then ``run_port`` and ``journal_port``, and ``host_code``.
"""
