"""Sandbox: back-ends that confine one command by means of the kernel, and end everything it started.

Knows processes and system calls; which commands may run is decided elsewhere (:mod:`agentflow.executors.policy`).
Start with :mod:`agentflow.executors.sandbox.backend`, the port and its promises. ``bubblewrap``, ``landlock`` and
``unconfined`` implement it; ``selftest`` tries to break out of them before the first command.
"""
