"""MCP servers that offer a flow their tools: ``AgentFlow(mcp=[McpStdio(...), McpHttp(...)])``. Needs the extra ``mcp``."""

from agentflow.connect.servers import Approve, McpHttp, McpServer, McpStdio
from agentflow.connect.sign_in import RegisteredClient, SignIn
from agentflow.connect.token_store import FileTokens, MemoryTokens, TokenStore

__all__ = [
    "Approve",
    "FileTokens",
    "McpHttp",
    "McpServer",
    "McpStdio",
    "MemoryTokens",
    "RegisteredClient",
    "SignIn",
    "TokenStore",
]
