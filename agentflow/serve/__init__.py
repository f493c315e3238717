"""Serving a flow over HTTP: an endpoint for OpenAI's clients, an API of runs, and a live page.

``app(flow, exports)`` returns an ASGI application; ``agentflow serve`` runs one. Needs the extra ``serve``.

Read ``server`` (the application and its routes), ``served_flow`` and ``served_runs`` (shared by all routes), ``incoming`` and ``keys``
(authorization), then the fronts: ``run_api``, ``chat`` and ``responses``, ``agui`` and ``ui_stream``.
"""

from agentflow.serve.exports import Export
from agentflow.serve.keys import Key, KeyRules, Keys, read_keys
from agentflow.serve.server import FlowServer
from agentflow.serve.server import FlowServer as app

__all__ = ["Export", "FlowServer", "Key", "KeyRules", "Keys", "app", "read_keys"]
