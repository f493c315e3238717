"""Where durable runs are stored: implementations of :class:`~agentflow.core.ports.store_ports.JournalStore`.

This room stores rows and knows nothing about their meaning. Start reading at :mod:`agentflow.journal.sqlite`.
"""
