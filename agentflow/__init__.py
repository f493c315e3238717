"""agentflow: LLM workflows as small programs, compiled to native coroutines, concurrent, streaming, bounded.

Start with :class:`AgentFlow`. Names are loaded when first used, so that ``import agentflow`` stays light; events are in
``agentflow.events``, all error classes in ``agentflow.errors``, test helpers in ``agentflow.testing``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.core.approval import ApprovalRequest
    from agentflow.core.call import CallContext
    from agentflow.core.context import AssociativeMatchResult, ContextGenerationInput, DataContext, MatchItem
    from agentflow.core.errors import (
        AgentflowError,
        ConfigurationError,
        LimitExceeded,
        ProviderError,
        SexpEvaluationError,
        SexpSyntaxError,
        TaskError,
        UnboundSymbolError,
    )
    from agentflow.core.events import Event
    from agentflow.core.limits import Limits, Rate
    from agentflow.core.memory_ports import Candidate
    from agentflow.core.messages import ModelDelta, ModelRequest, Usage
    from agentflow.core.ports import ProviderAdapter
    from agentflow.core.requests import FunctionCallNode, SubtaskRequest
    from agentflow.core.results import TaskResult
    from agentflow.core.session import Session
    from agentflow.core.templates import ContextManagement, HistoryConfig, TaskTemplate
    from agentflow.core.values import Symbol
    from agentflow.executors.command_executor import CommandExecutor
    from agentflow.executors.file_access import FileAccessManager
    from agentflow.handler.tools import tool
    from agentflow.lang.closure import Closure
    from agentflow.lang.environment import SexpEnvironment
    from agentflow.lang.program import Program
    from agentflow.lib.redact import Secret
    from agentflow.observe.otel import OpenTelemetry
    from agentflow.observe.report.observer import Report
    from agentflow.providers.prices import Price
    from agentflow.providers.scripted import ScriptedProvider
    from agentflow.runtime.durable_run import DurableRun
    from agentflow.runtime.handle import RunResult, RunStream
    from agentflow.spec.evaluator import SexpEvaluator
    from agentflow.spec.executors import SystemExecutorFunctions
    from agentflow.spec.handler import BaseHandler
    from agentflow.spec.memory import MemorySystem
    from agentflow.spec.task_system import TaskSystem

_HOMES = {
    "AgentFlow": "app",
    "AgentflowError": "core.errors",
    "ApprovalRequest": "core.approval",
    "AssociativeMatchResult": "core.context",
    "BaseHandler": "spec.handler",
    "CallContext": "core.call",
    "Candidate": "core.memory_ports",
    "Closure": "lang.closure",
    "CommandExecutor": "executors.command_executor",
    "ConfigurationError": "core.errors",
    "ContextGenerationInput": "core.context",
    "ContextManagement": "core.templates",
    "DataContext": "core.context",
    "DurableRun": "runtime.durable_run",
    "Event": "core.events",
    "FileAccessManager": "executors.file_access",
    "FunctionCallNode": "core.requests",
    "HistoryConfig": "core.templates",
    "LimitExceeded": "core.errors",
    "Limits": "core.limits",
    "MatchItem": "core.context",
    "MemorySystem": "spec.memory",
    "ModelDelta": "core.messages",
    "ModelRequest": "core.messages",
    "OpenTelemetry": "observe.otel",
    "Program": "lang.program",
    "Price": "providers.prices",
    "ProviderAdapter": "core.ports",
    "ProviderError": "core.errors",
    "Rate": "core.limits",
    "Report": "observe.report.observer",
    "RunResult": "runtime.handle",
    "RunStream": "runtime.handle",
    "ScriptedProvider": "providers.scripted",
    "Secret": "lib.redact",
    "Session": "core.session",
    "SexpEnvironment": "lang.environment",
    "SexpEvaluationError": "core.errors",
    "SexpEvaluator": "spec.evaluator",
    "SexpSyntaxError": "core.errors",
    "SubtaskRequest": "core.requests",
    "Symbol": "core.values",
    "SystemExecutorFunctions": "spec.executors",
    "TaskError": "core.errors",
    "TaskResult": "core.results",
    "TaskSystem": "spec.task_system",
    "TaskTemplate": "core.templates",
    "UnboundSymbolError": "core.errors",
    "Usage": "core.messages",
    "tool": "handler.tools",
}

__all__ = [
    "AgentFlow",
    "AgentflowError",
    "ApprovalRequest",
    "AssociativeMatchResult",
    "BaseHandler",
    "CallContext",
    "Candidate",
    "Closure",
    "CommandExecutor",
    "ConfigurationError",
    "ContextGenerationInput",
    "ContextManagement",
    "DataContext",
    "DurableRun",
    "Event",
    "FileAccessManager",
    "FunctionCallNode",
    "HistoryConfig",
    "LimitExceeded",
    "Limits",
    "MatchItem",
    "MemorySystem",
    "ModelDelta",
    "ModelRequest",
    "OpenTelemetry",
    "Price",
    "Program",
    "ProviderAdapter",
    "ProviderError",
    "Rate",
    "Report",
    "RunResult",
    "RunStream",
    "ScriptedProvider",
    "Secret",
    "Session",
    "SexpEnvironment",
    "SexpEvaluationError",
    "SexpEvaluator",
    "SexpSyntaxError",
    "SubtaskRequest",
    "Symbol",
    "SystemExecutorFunctions",
    "TaskError",
    "TaskResult",
    "TaskSystem",
    "TaskTemplate",
    "UnboundSymbolError",
    "Usage",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentflow' has no attribute '{name}'")
    value = getattr(import_module(f"agentflow.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
