"""Connections: servers of the Model Context Protocol, whose tools become tools of the flow.

Knows the protocol's SDK, processes through a port, and the run through a call; the registry decides which tools exist.
Start with :mod:`agentflow.connect.servers`, the descriptions that hosts write, and :mod:`agentflow.connect.connections`,
which a flow holds. Only the modules below those two import the SDK, and they are imported when the first server is
connected, because importing it takes a second and a half.
"""
