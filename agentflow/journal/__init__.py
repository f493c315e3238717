"""The stores of durable runs: implementations of :class:`~agentflow.core.ports.store_ports.JournalStore`.

This room stores rows without interpreting them. Read ``store`` first, the common part of both databases, over the
``connection`` and the ``rows``; then its leaf ``sqlite``. ``writer`` is the thread that all statements pass through,
``sessions`` and ``cleaning`` are the other tables, ``events`` the logs of runs. The features of a server beyond a file are
in ``postgres``.
"""
