"""MCP servers whose tools a flow has: ``AgentFlow(mcp=[McpStdio(...), McpHttp(...)])``. Needs the extra ``mcp``."""

from agentflow.connect.servers import Approve, McpHttp, McpServer, McpStdio

__all__ = ["Approve", "McpHttp", "McpServer", "McpStdio"]
