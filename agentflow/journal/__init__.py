"""Where durable runs are stored: implementations of :class:`~agentflow.core.ports.store_ports.JournalStore`.

This room stores rows and knows nothing about their meaning. Read ``store`` first, which has what both databases do alike, over the
``connection`` and the ``rows``; then its leaf ``sqlite``. ``writer`` is the thread that all statements pass through,
``sessions`` and ``cleaning`` are the other tables, ``events`` the logs of runs. What a server has beyond a file is in ``postgres``.
"""
