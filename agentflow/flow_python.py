"""The methods of :class:`agentflow.AgentFlow` for tasks and workflows that are Python functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast, overload

from typing_extensions import Unpack

from agentflow.arguments import check_run
from agentflow.core.call.call import CallContext
from agentflow.core.data.media import PromptParts, load_parts
from agentflow.core.data.messages import TextPart
from agentflow.core.data.session import Session
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.toolbox import NO_TOOLBOX, Toolbox
from agentflow.flow.functions import (
    AskSettings,
    ProgramFunction,
    Task,
    TaskFunction,
    TaskSettings,
    WorkflowFunction,
    check_options,
    tools_of,
)
from agentflow.flow.host_spans import HostSpans
from agentflow.flow.line import Line
from agentflow.flow.program_files import ProgramLike
from agentflow.flow.python import FlowCall, WorkCall, check_arguments
from agentflow.flow_programs import ProgramMethods
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.toolbox import read_tools
from agentflow.tasks.from_function import Returns

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")

_MOST_ASKED = 200
_PROMPT = {"name": "ask", "params": {"prompt": "string"}, "instructions": "{{prompt}}"}
_PROMPT_WITH_MEDIA = {**_PROMPT, "params": {"prompt": "string", "attached": "any"}}


class PythonMethods(ProgramMethods):
    """What a flow offers those who write Python. A base of :class:`agentflow.AgentFlow`, which builds what it uses."""

    tools: ToolRegistry

    def __init__(self) -> None:
        self.spans = HostSpans()
        self._asked: dict[Any, Task[Any]] = {}
        self._workflows: dict[str, Tool] = {}
        self._speaks_of_tools = False

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
    @overload
    def task(self, **settings: Unpack[TaskSettings]) -> Callable[[Callable[P, Awaitable[R]]], TaskFunction[P, R]]: ...
    def task(self, function: Callable[..., Any] | None = None, **settings: Any) -> Any:
        """Make an async function a task of this flow: ``@flow.task`` or ``@flow.task(model=..., tools=[...])``.

        Its docstring is the prompt, with the parameters as ``{{slots}}``, and its body ``...``; text that the body returns
        is the prompt instead. Arguments are validated
        before any model is asked, and the answer into the type that the function returns: ``str`` is text, ``TaskResult``
        the whole result, which raises nothing. Programs call it by its name, ``(review (path "a.py"))``. The options are
        those of :class:`TaskSettings`. Raises ConfigurationError: ``python/annotation``, ``python/returns``,
        ``python/no-prompt``, ``python/not-async``, ``tool/signature``, ``config/option`` for an option that there is not; DataError ``tasks/undeclared-parameter`` for a slot
        that is no parameter, and what else a template may be refused for.
        """

        def register(function: Callable[..., Any]) -> TaskFunction[..., Any]:
            task = TaskFunction(self, function, cast(TaskSettings, settings))
            task.declare()
            return task

        return register if function is None else register(function)

    @overload
    def ask(
        self, prompt: PromptParts, *, session: Session | None = None, **settings: Unpack[AskSettings]
    ) -> FlowCall[str]: ...
    @overload
    def ask(
        self, prompt: PromptParts, *, output: type[R], session: Session | None = None, **settings: Unpack[AskSettings]
    ) -> FlowCall[R]: ...
    @overload
    def ask(
        self, prompt: PromptParts, *, output: Any, session: Session | None = None, **settings: Unpack[AskSettings]
    ) -> FlowCall[Any]: ...
    def ask(
        self, prompt: PromptParts, *, output: Any = str, session: Session | None = None, **settings: Any
    ) -> FlowCall[Any]:
        """Ask the model once: a task without a function. ``output`` is the type of the answer, text unless it says so.

        ``prompt`` is text, or a list of texts, paths of files and parts: ``["What is this?", Path("photo.png")]``, see
        :func:`agentflow.media.attachment`. ``session`` is a conversation to go on with; without one the prompt is all that the
        model is sent. The other options are those of :class:`~agentflow.flow.functions.AskSettings`.
        Raises ConfigurationError (``config/option``) for one that there is not, the error of a task that fails, InvalidOutput
        for an answer of another type.
        """
        check_arguments("ask", (prompt,), {})
        own = NO_TOOLBOX
        if settings:
            check_options(settings, "ask")
            if "tools" in settings:
                names, own = tools_of(self, cast(TaskSettings, settings), "flow.ask")
                settings = {**settings, "tools": self.tools if names is None else tuple(names)}
        if session is not None:
            check_run(None, None, session)
        span = self.spans.here()

        async def work(line: Line) -> Any:
            if "tools" not in settings and line.strand.call.run.watched:
                self._tell_not_offered(line.strand.call)
            inputs = {"prompt": prompt} if isinstance(prompt, str) else await _with_media(prompt)
            task = self._asking(output, settings, len(inputs) > 1)
            task = task.given(own) if own else task
            if session is None or line.strand.call.session.goes_on_with(session):  # the run's
                return await task.work(line, inputs, span)
            async with line.conversing(session):
                return await task.work(line, inputs, span)

        return WorkCall(self, "ask", span, work, session=session)

    def _asking(self, output: Any, settings: dict[str, Any], attached: bool) -> Task[Any]:
        """The task of :meth:`ask` for an output and options, made once."""
        try:
            key = (output, attached, *sorted(settings.items()))
            task = self._asked.get(key)
        except TypeError:  # an option that cannot be a key
            key = task = None
        if task is None:
            fields = _PROMPT_WITH_MEDIA if attached else _PROMPT
            task = Task(self, fields, Returns[Any](output, "ask"), cast(TaskSettings, settings))
            if key is not None:
                if len(self._asked) >= _MOST_ASKED:
                    self._asked.clear()
                self._asked[key] = task
        return task

    @overload
    def program(
        self, program: ProgramLike, parameters: Mapping[str, Any] | None = None, *, returns: type[R]
    ) -> ProgramFunction[R]: ...
    @overload
    def program(
        self, program: ProgramLike, parameters: Mapping[str, Any] | None = None, *, returns: Any = None
    ) -> ProgramFunction[Any]: ...
    def program(
        self, program: ProgramLike, parameters: Mapping[str, Any] | None = None, *, returns: Any = None
    ) -> ProgramFunction[Any]:
        """A program as a function: ``flow.program(Path("review.sexp"), {"path": str}, returns=Review)``.

        It is called with the program's bindings by name, ``await review(path="a.py")``, each validated as its type in
        ``parameters``; without these any are taken. What the program gives is validated into the type ``returns``, or is
        given as it is. Raises ConfigurationError (``python/returns``) for a type without a JSON Schema.
        """
        return ProgramFunction(self, program, parameters, returns)

    def workflow(self, function: Callable[P, Awaitable[R]], /) -> WorkflowFunction[P, R]:
        """Make an async function a workflow of this flow.

        What it calls is done in one run: ``await audit(paths)`` is one, ``flow.run(audit(paths), limits=...)``,
        ``flow.stream`` and ``flow.start`` say more about it. Programs call it by its name, and so do models that are given
        it as a tool. Raises ConfigurationError as :meth:`task` does for what is not annotated.
        """
        workflow = WorkflowFunction(self, function)
        before = self._workflows.get(workflow.name)
        self.tools.add(workflow.tool, replace=before is not None and self.tools.find(workflow.name) is before)
        self._workflows[workflow.name] = workflow.tool
        self.engine.functions[workflow.reference] = workflow
        return workflow

    def read_tools(self, tools: object, where: str) -> tuple[list[str] | None, Toolbox]:
        """The names that a list of tools offers, None for all ordinary ones of the flow, and the objects among them."""
        self._speaks_of_tools = True
        return read_tools(tools, self.tools, where)

    def _tell_not_offered(self, call: CallContext) -> None:
        """Warn, once, of a question that says nothing of tools in a flow that has some."""
        if self._speaks_of_tools or not self.tools.ordinary(call):
            return
        self._speaks_of_tools = True
        call.warn(
            "tools/not-offered",
            "flow.ask offers its model no tools, although the flow has some: write tools=flow.tools to offer all of them, "
            "or tools=[] to say that none is meant",
        )


async def _with_media(prompt: PromptParts) -> dict[str, Any]:
    """The arguments of :meth:`PythonMethods.ask` for a list: its texts as the prompt, the rest attached."""
    parts = await load_parts(prompt)
    text = "\n\n".join([part.text for part in parts if isinstance(part, TextPart)])
    attached = [part for part in parts if not isinstance(part, TextPart)]
    return {"prompt": text, "attached": attached} if attached else {"prompt": text}
