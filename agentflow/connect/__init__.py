"""Connections: servers of the Model Context Protocol, whose tools become tools of the flow.

Knows the protocol's SDK, processes through a port, and the run through a call; which tools there are is the registry's
affair. Start with :mod:`agentflow.connect.servers`, what a host writes, and :mod:`agentflow.connect.connections`, what a
flow holds. The SDK is imported by the modules below those two only, and those are imported when the first server is
connected: it costs a second and a half.
"""
