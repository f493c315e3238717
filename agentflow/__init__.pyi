"""The public names with their types, for editors and type checkers; ``__init__.py`` loads them when they are first used."""

from agentflow.app import AgentFlow as AgentFlow
from agentflow.core.call.approval import ApprovalRequest as ApprovalRequest
from agentflow.core.call.approval import Approved as Approved
from agentflow.core.call.approval import Denied as Denied
from agentflow.core.call.call import CallContext as CallContext
from agentflow.core.data.allowances import Allowance as Allowance
from agentflow.core.call.endings import Finish as Finish
from agentflow.core.call.endings import Handoff as Handoff
from agentflow.core.call.endings import Retry as Retry
from agentflow.core.data.context import (
    AssociativeMatchResult as AssociativeMatchResult,
    ContextGenerationInput as ContextGenerationInput,
    DataContext as DataContext,
    MatchItem as MatchItem,
)
from agentflow.core.data.errors import (
    AgentflowError as AgentflowError,
    ConfigurationError as ConfigurationError,
    LimitExceeded as LimitExceeded,
    ProviderError as ProviderError,
    SexpEvaluationError as SexpEvaluationError,
    SexpSyntaxError as SexpSyntaxError,
    TaskError as TaskError,
    UnboundSymbolError as UnboundSymbolError,
)
from agentflow.core.events.events import Event as Event
from agentflow.core.data.limits import (
    Limits as Limits,
    Rate as Rate,
)
from agentflow.core.ports.memory_ports import Candidate as Candidate
from agentflow.core.data.messages import (
    ModelDelta as ModelDelta,
    ModelRequest as ModelRequest,
    ModelResponse as ModelResponse,
    Usage as Usage,
)
from agentflow.core.ports.ports import (
    ProviderAdapter as ProviderAdapter,
    ToolCall as ToolCall,
)
from agentflow.core.call.provenance import (
    Labelled as Labelled,
    Provenance as Provenance,
    Sink as Sink,
)
from agentflow.core.data.requests import (
    FunctionCallNode as FunctionCallNode,
    SubtaskRequest as SubtaskRequest,
)
from agentflow.core.data.results import TaskResult as TaskResult
from agentflow.core.data.session import Session as Session
from agentflow.core.data.templates import (
    Clear as Clear,
    ContextManagement as ContextManagement,
    HistoryConfig as HistoryConfig,
    TaskTemplate as TaskTemplate,
)
from agentflow.core.ports.toolbox import Toolbox as Toolbox
from agentflow.core.data.values import Symbol as Symbol
from agentflow.executors.command_executor import CommandExecutor as CommandExecutor
from agentflow.executors.file_access import FileAccessManager as FileAccessManager
from agentflow.flow.unbound import (
    task as task,
    workflow as workflow,
)
from agentflow.handler.code_mode import code as code
from agentflow.handler.external_tools import external as external
from agentflow.handler.tools import tool as tool
from agentflow.lang.closure import Closure as Closure
from agentflow.lang.environment import SexpEnvironment as SexpEnvironment
from agentflow.lang.program import Program as Program
from agentflow.journal.urls import Durable as Durable
from agentflow.lib.redact import Secret as Secret
from agentflow.observe.otel import OpenTelemetry as OpenTelemetry
from agentflow.observe.report.observer import Report as Report
from agentflow.providers.prices import Price as Price
from agentflow.providers.scripted import ScriptedProvider as ScriptedProvider
from agentflow.providers.dialects.traits import Traits as Traits
from agentflow.providers.table import Provider as Provider
from agentflow.durable.handle import DurableRun as DurableRun
from agentflow.run.handle import RunResult as RunResult
from agentflow.run.run_stream import RunStream as RunStream
from agentflow.run.purses import Purses as Purses
from agentflow.spec.evaluator import SexpEvaluator as SexpEvaluator
from agentflow.spec.executors import SystemExecutorFunctions as SystemExecutorFunctions
from agentflow.spec.handler import BaseHandler as BaseHandler
from agentflow.spec.memory import MemorySystem as MemorySystem
from agentflow.spec.task_system import TaskSystem as TaskSystem
from agentflow.tasks.template_environment import Environment as Environment
from agentflow.tasks.step_history import SequentialHistory as SequentialHistory
