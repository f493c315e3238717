"""The public names with their types, for editors and type checkers; ``__init__.py`` loads them when they are first used."""

from agentflow.app import AgentFlow as AgentFlow
from agentflow.core.approval import ApprovalRequest as ApprovalRequest
from agentflow.core.approval import Approved as Approved
from agentflow.core.approval import Denied as Denied
from agentflow.core.call import CallContext as CallContext
from agentflow.core.context import (
    AssociativeMatchResult as AssociativeMatchResult,
    ContextGenerationInput as ContextGenerationInput,
    DataContext as DataContext,
    MatchItem as MatchItem,
)
from agentflow.core.errors import (
    AgentflowError as AgentflowError,
    ConfigurationError as ConfigurationError,
    LimitExceeded as LimitExceeded,
    ProviderError as ProviderError,
    SexpEvaluationError as SexpEvaluationError,
    SexpSyntaxError as SexpSyntaxError,
    TaskError as TaskError,
    UnboundSymbolError as UnboundSymbolError,
)
from agentflow.core.events import Event as Event
from agentflow.core.limits import (
    Limits as Limits,
    Rate as Rate,
)
from agentflow.core.memory_ports import Candidate as Candidate
from agentflow.core.messages import (
    ModelDelta as ModelDelta,
    ModelRequest as ModelRequest,
    Usage as Usage,
)
from agentflow.core.ports import ProviderAdapter as ProviderAdapter
from agentflow.core.provenance import (
    Labelled as Labelled,
    Provenance as Provenance,
    Sink as Sink,
)
from agentflow.core.requests import (
    FunctionCallNode as FunctionCallNode,
    SubtaskRequest as SubtaskRequest,
)
from agentflow.core.results import TaskResult as TaskResult
from agentflow.core.session import Session as Session
from agentflow.core.templates import (
    ContextManagement as ContextManagement,
    HistoryConfig as HistoryConfig,
    TaskTemplate as TaskTemplate,
)
from agentflow.core.toolbox import Toolbox as Toolbox
from agentflow.core.values import Symbol as Symbol
from agentflow.executors.command_executor import CommandExecutor as CommandExecutor
from agentflow.executors.file_access import FileAccessManager as FileAccessManager
from agentflow.handler.tools import tool as tool
from agentflow.lang.closure import Closure as Closure
from agentflow.lang.environment import SexpEnvironment as SexpEnvironment
from agentflow.lang.program import Program as Program
from agentflow.lib.redact import Secret as Secret
from agentflow.observe.otel import OpenTelemetry as OpenTelemetry
from agentflow.observe.report.observer import Report as Report
from agentflow.providers.prices import Price as Price
from agentflow.providers.scripted import ScriptedProvider as ScriptedProvider
from agentflow.providers.traits import Traits as Traits
from agentflow.runtime.durable_run import DurableRun as DurableRun
from agentflow.runtime.handle import (
    RunResult as RunResult,
    RunStream as RunStream,
)
from agentflow.spec.evaluator import SexpEvaluator as SexpEvaluator
from agentflow.spec.executors import SystemExecutorFunctions as SystemExecutorFunctions
from agentflow.spec.handler import BaseHandler as BaseHandler
from agentflow.spec.memory import MemorySystem as MemorySystem
from agentflow.spec.task_system import TaskSystem as TaskSystem
from agentflow.tasks.environment import Environment as Environment
from agentflow.tasks.history import SequentialHistory as SequentialHistory
