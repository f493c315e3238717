"""agentflow: LLM workflows as small programs, compiled to native coroutines, concurrent, streaming, bounded.

Start with :class:`AgentFlow`. Names are loaded when first used, so that ``import agentflow`` stays light; events are in
``agentflow.events``, all error classes in ``agentflow.errors``, test helpers in ``agentflow.testing``.
"""

from importlib import import_module

_NAMES = {
    "app": "AgentFlow",
    "core.call.approval": "ApprovalRequest Approved Denied",
    "core.call.call": "CallContext",
    "core.data.allowances": "Allowance",
    "core.call.endings": "Finish Handoff Retry",
    "core.data.context": "AssociativeMatchResult ContextGenerationInput DataContext MatchItem",
    "core.data.errors": "AgentflowError ConfigurationError LimitExceeded ProviderError SexpEvaluationError SexpSyntaxError TaskError UnboundSymbolError",
    "core.events.events": "Event",
    "core.data.limits": "Limits Rate",
    "core.ports.memory_ports": "Candidate",
    "core.data.messages": "ModelDelta ModelRequest ModelResponse Usage",
    "core.ports.ports": "ProviderAdapter ToolCall",
    "core.call.provenance": "Labelled Provenance Sink",
    "core.data.requests": "FunctionCallNode SubtaskRequest",
    "core.data.results": "TaskResult",
    "core.data.session": "Session",
    "core.data.templates": "Clear ContextManagement HistoryConfig TaskTemplate",
    "core.ports.toolbox": "Toolbox",
    "core.data.values": "Symbol",
    "executors.command_executor": "CommandExecutor",
    "executors.file_access": "FileAccessManager",
    "flow.unbound": "task workflow",
    "handler.code_mode": "code",
    "handler.external_tools": "external",
    "handler.tools": "tool",
    "lang.closure": "Closure",
    "lang.environment": "SexpEnvironment",
    "lang.program": "Program",
    "journal.urls": "Durable",
    "lib.redact": "Secret",
    "observe.otel": "OpenTelemetry",
    "observe.report.observer": "Report",
    "providers.prices": "Price",
    "providers.scripted": "ScriptedProvider",
    "providers.dialects.traits": "Traits",
    "providers.table": "Provider",
    "durable.handle": "DurableRun",
    "run.handle": "RunResult",
    "run.run_stream": "RunStream",
    "run.purses": "Purses",
    "spec.evaluator": "SexpEvaluator",
    "spec.executors": "SystemExecutorFunctions",
    "spec.handler": "BaseHandler",
    "spec.memory": "MemorySystem",
    "spec.task_system": "TaskSystem",
    "tasks.template_environment": "Environment",
    "tasks.step_history": "SequentialHistory",
}
"""The public names by the module that defines each; ``__init__.pyi`` has the same names with their types."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll] - checkers read the stub


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentflow' has no attribute '{name}'")
    value = getattr(import_module(f"agentflow.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
