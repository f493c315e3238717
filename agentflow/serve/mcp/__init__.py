"""A flow as an MCP server: its exports are tools, over streamable HTTP next to the other routes, or over stdio.

Needs the extra ``mcp``. Its SDK takes more than a second to import, so nothing here is imported before it is needed. Start
reading at ``server.py``, the handlers of the protocol; ``calls.py`` is one tool call.
"""
