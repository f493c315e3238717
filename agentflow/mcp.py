"""MCP servers that offer a flow their tools: ``AgentFlow(mcp=[McpStdio(...), McpHttp(...)])``. Needs the extra ``mcp``."""

from agentflow.connect.servers import Approve, McpHttp, McpServer, McpStdio

__all__ = ["Approve", "McpHttp", "McpServer", "McpStdio"]
