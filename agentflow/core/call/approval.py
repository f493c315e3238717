"""Requests to an approver, and the decision in an answer: every answer, on any way, goes through
:func:`decided`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, TypeAlias, cast

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.reasons import Reason
from agentflow.core.events.facts import Authority

PROGRAM = "program"
"""The ``tool`` of a request for a whole program."""


@frozen(kw_only=True)
class Manifest:
    """The limits of a program written by a model: its text, everything it can reach, and its upper bounds as text.

    ``covers`` are the tools that need no further approval once the program has one; ``unbounded`` lists each part
    without a bound, with its location and the reason.
    """

    program: str
    authority: Authority
    covers: tuple[str, ...]
    model_calls: str
    tool_calls: str
    usd: str
    unbounded: tuple[str, ...] = ()

    def text(self) -> str:
        """The manifest as lines of text, the program last."""
        rows = [
            ("model calls", self.model_calls),
            ("tool calls", self.tool_calls),
            ("money", self.usd),
            *self.authority.rows(),
            ("unasked then", ", ".join(self.covers)),
            *[("no bound", each) for each in self.unbounded],
        ]
        return "\n".join([*[f"{label:<13} {text}" for label, text in rows], "", self.program])


@frozen
class ApprovalRequest:
    """A request to an approver: the tool or command, its arguments, and why approval is needed.

    ``text`` is safe to show (control characters escaped); ``digest`` binds the approval to exactly this call.
    ``run_id`` and ``path`` locate the call; ``call_id`` is the model's tool call, if a model asked for it. A program
    written by a model is one request, for the tool ``program``, with its ``manifest``. ``identity`` identifies the tool
    independently of its arguments: an approved program covers this tool only, not another of the same name. ``editable``:
    the answer may be ``Approved(arguments=...)`` with different arguments.
    """

    tool: str
    text: str
    digest: str
    reason: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    run_id: str = ""
    path: str = ""
    call_id: str | None = None
    manifest: Manifest | None = None
    identity: str = ""
    editable: bool = False


@frozen
class Approved:
    """A yes, in place of ``True``, from an approver or through ``flow.send``.

    ``arguments``, if given, replace the requested arguments. They are checked like any others, by the tool's schema and the
    flow's policy, and the model sees them.
    """

    arguments: Mapping[str, Any] | None = None


class Denied(AgentflowError):
    """A no, returned or raised by an approver, or sent through ``flow.send``.

    ``why`` is the reason; the model that asked for the call reads it. Without one it reads only that the call was refused.
    """

    default_code = "tool/not-approved"
    default_reason: ClassVar[Reason] = "tool_execution_error"

    def __init__(self, why: str = "") -> None:
        self.why = " ".join(str(why).split())
        super().__init__(self.why or "the call was not approved")

    def __reduce__(self) -> tuple[Any, ...]:
        return Denied, (self.why,)


Decision: TypeAlias = Approved | Denied
"""The decision about a request."""

_ANY = ApprovalRequest("", "", "", editable=True)
_FORM = frozenset({"approved", "arguments"})


# One place decides, so that every door decides alike (decision 28)
def decided(answer: object, request: ApprovalRequest, warn: Callable[[str, str], None]) -> Decision:
    """The decision that ``answer`` stands for. Only this function defines a yes.

    ``True`` and :class:`Approved` are yes. ``False``, None, a text and :class:`Denied` are no; a text is its reason.
    Anything else is a no too and causes a warning through ``warn`` (:meth:`CallContext.warn`), as do changed arguments for a
    non-editable request.
    """
    if answer is True:
        return Approved()
    if isinstance(answer, Approved):
        if answer.arguments is None or (request.editable and isinstance(answer.arguments, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return answer
        problem = (
            "arguments that are not a dict" if request.editable else "other arguments, which this call does not take"
        )
    elif isinstance(answer, Denied):
        return answer
    elif isinstance(answer, str):
        return Denied(answer)
    elif answer is None or answer is False:
        return Denied()
    else:
        problem = f"a value of type {type(answer).__name__}, which is not a yes"
    warn(
        "tool/unclear-approval",
        f"the answer to the request for {request.tool} was {problem}: it counts as a no; "
        "answer True, Approved(arguments={...}), False or Denied('why')",
    )
    return Denied()


def of_wire(data: object) -> object:
    """An answer received as JSON, for :func:`decided`: exactly ``{"approved": true, "arguments": {...}}`` is :class:`Approved`."""
    if isinstance(data, dict):
        form = cast("dict[str, Any]", data)
        arguments: object = form.get("arguments")
        if form.keys() == _FORM and form["approved"] is True and isinstance(arguments, dict):
            return Approved(cast("dict[str, Any]", arguments))
    return cast(object, data)


def to_wire(answer: object) -> object:
    """An answer as JSON data that :func:`of_wire` reads back as an equal one; other values stay unchanged."""
    if isinstance(answer, Approved):
        return True if answer.arguments is None else {"approved": True, "arguments": dict(answer.arguments)}
    return (answer.why or False) if isinstance(answer, Denied) else answer


def is_yes(data: object) -> bool:
    """Whether an answer in JSON is a yes, for the reply to its sender."""
    return isinstance(decided(of_wire(data), _ANY, lambda code, message: None), Approved)


def refusal(what: str, denied: Denied) -> str:
    """The text a model reads about a refused call; ``what`` names the call: ``the tool 'send_mail'``."""
    why = f": {denied.why}" if denied.why else ""
    return (
        f"{what} was not approved and did not run{why}. Do not ask for the same again; "
        "continue without it, ask for something else, or say in your answer that it was refused"
    )


Approver = Callable[
    [ApprovalRequest], "bool | str | Approved | Denied | None | Awaitable[bool | str | Approved | Denied | None]"
]
"""Called before a tool call that needs approval; plain or async. ``True`` and :class:`Approved` permit the call.

It gets one request of a run at a time, unless it has a true attribute ``concurrent``: then it is called whenever approval
is needed, which suits an approver that passes requests on.
"""
