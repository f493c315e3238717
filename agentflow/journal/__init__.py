"""Where durable runs are stored: implementations of :class:`~agentflow.core.store_ports.JournalStore`.

This room knows rows and nothing of what they mean. Start reading at :mod:`agentflow.journal.sqlite`.
"""
