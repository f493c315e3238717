"""Connections: servers of the Model Context Protocol, with tools that become tools of the flow.

Knows the protocol's SDK, processes through a port, and the run through a call; the registry decides which tools exist.
Read ``servers`` (the descriptions that hosts write) and ``connections`` (held by a flow) first. A server is then connected by
``server_connection`` over ``stdio`` or ``http``; ``live`` is the open connection, ``listing`` accepts its tools, ``connected`` calls them.
Only the modules below ``connections`` import the SDK, and they are imported when the first server is connected, because importing
it takes a second and a half.
"""
