"""Every error agentflow raises.

    AgentflowError
    ├── SexpSyntaxError            the text is not a program
    ├── SexpEvaluationError        the program is wrong, found at compile time or at run time
    │   └── UnboundSymbolError     (also a NameError)
    ├── RunStopped                 it ends the run: a program cannot catch it
    │   ├── LimitExceeded          a limit of the run was met
    │   ├── ChangeRefused          a change would reveal protected data under a strict policy
    │   └── HostPanic              host code raised something other than an Exception
    ├── StrayExit                  host code called sys.exit, or raised CancelledError without being cancelled
    ├── WorkflowError              a Python workflow misuses its calls
    │   ├── PythonOverlap          it has two calls in flight on one branch
    │   └── UnawaitedAttribute     it reads an attribute of a call that was not awaited (also an AttributeError)
    ├── RunCancelled               the run was left before its end, so it has no value
    ├── ConfigurationError         a setting, a key or a model name is missing or wrong
    ├── SessionBusy                a session is in use by another run
    ├── PathDenied                 a file tool refuses a path
    ├── CommandDenied              the policy refuses a command
    ├── SandboxUnavailable         a sandbox back-end failed its self-test
    ├── Denied                     an approver's no, with its reason (core/call/approval.py)
    ├── DataError                  data from outside (a template, a cassette, an index) is invalid
    ├── JournalError               a durable run cannot be stored, or does not fit its records
    └── TaskError                  a task, tool or model failed: kind, reason, details
        ├── ResourceExhausted      one task used up its context or output
        ├── InvalidOutput          the model's answer does not have the required form
        └── ProviderError          a model call failed: status, request id, partial text (core/data/provider_errors.py)
            ├── AuthenticationFailed (401), PermissionDenied (403), BadRequest (400, 404, 409, 413, 422 ...)
            ├── RateLimited (429), Overloaded (503, 529), ServerError (500, 502 ...)
            ├── ContextWindowExceeded, Refused
            ├── ConnectionLost, ConnectionRefused, ConnectTimeout, FirstByteTimeout, IdleTimeout, CallTimeout
            ├── IncompleteStream   the answer has no end: no stop reason, or a truncated body
            └── ProtocolError      the server did not speak its dialect

An error is built once, where it is detected, with a code (``family/name``), a message, a hint and, in a program, a span.
Upper layers add frames; they never re-wrap or stringify an error. Rendering is separate from the data.
"""

from __future__ import annotations

import copy as shallow
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any, ClassVar

from agentflow.core.data.frozen import frozen
from agentflow.core.data.reasons import Reason, known_reason
from agentflow.core.data.source import Span

if TYPE_CHECKING:
    from agentflow.core.data.messages import Usage

MAX_MESSAGE = 2_000
"""Maximum length of a message in characters; a longer one is cut in the middle."""
MAX_FRAMES = 24
"""Maximum number of program frames in an error; those in the middle are only counted."""


@frozen
class Frame:
    """A program call that an error passed through: the called name, and the span."""

    name: str
    span: Span | None


_WORD = f"{ascii_letters}{digits}_-."
_LONGEST_WORD = 256


def clip(text: str, limit: int = MAX_MESSAGE) -> str:
    """``text``, with its middle cut out if it is longer than ``limit`` characters.

    The part after the cut does not begin within a word of usual length, which could be the unrecognizable end of a key.
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    first = len(text) - half
    if text[first - 1] in _WORD:
        in_word = half - len(text[first:].lstrip(_WORD))
        first += in_word if in_word <= _LONGEST_WORD and in_word < half else 0
    return f"{text[:half]} ... ({first - half} characters more) ... {text[first:]}"


def cut(text: str, limit: int) -> str:
    """``text``, or its first ``limit`` characters and ``...`` where it is longer.

    Shorten shown text by this function or :func:`clip`, never by a slice: next to their marks, redaction looks for the rest
    of a cut secret.
    """
    return text if len(text) <= limit else f"{text[:limit]}..."


class AgentflowError(Exception):
    """Base of all errors agentflow raises.

    Parameters: ``message`` describes the fault; ``code`` is the stable ``family/name`` that ``docs/errors.md`` lists;
    ``span`` is the location in the program; ``hint`` says how to write it instead; ``details`` is JSON data for machines.
    """

    default_code: ClassVar[str] = "internal/error"
    default_reason: ClassVar[Reason] = "unexpected_error"

    run_id: str | None = None
    """The run that raised the error, as its host sees it; so are ``usage`` and ``cost``."""
    usage: Usage | None = None
    """The tokens that the run had used."""
    cost: float | None = None
    """The USD that the run had cost; None if a price is unknown."""
    partial: Any = ()
    """The values that the outermost form which the error cut had by then, in order, at most 1,000: of ``parallel``, ``pmap``,
    ``map``, ``filter`` or ``race``. For the host only, who has paid for them. Of a ProviderError, the text that had arrived."""
    sources: frozenset[str] = frozenset()
    """The sources of the error's texts, in a flow with a policy; see :mod:`agentflow.core.call.provenance`."""
    recorded_cause: str | None = None
    """The :attr:`cause_text` of an error read back from a record, without its cause."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        span: Span | None = None,
        hint: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.message = clip(message)
        self.code = code or self.default_code
        self.span = span
        self.hint = clip(hint) if hint else hint
        self.details: dict[str, Any] = details or {}
        self.frames: list[Frame] = []
        self.frames_dropped = 0
        super().__init__(self.message)

    @property
    def reason(self) -> Reason:
        """The reason of this error in a FAILED result."""
        return self.default_reason

    @property
    def cause_text(self) -> str | None:
        """Class and message of the cause; None without one."""
        cause = self.__cause__
        return self.recorded_cause if cause is None else cut(f"{type(cause).__name__}: {cause}", MAX_MESSAGE)

    def add_frame(self, name: str, span: Span | None) -> None:
        """Record that the error passed through a program call. Consecutive equal frames are kept once."""
        frame = Frame(name, span)
        if self.frames and self.frames[-1] == frame:
            return
        if len(self.frames) >= MAX_FRAMES:
            del self.frames[MAX_FRAMES // 2]
            self.frames_dropped += 1
        self.frames.append(frame)

    def at(self, span: Span | None) -> AgentflowError:
        """Set the span, unless the error has one, and return the error."""
        if self.span is None:
            self.span = span
        return self

    def __str__(self) -> str:
        phase = self.details.get("phase")
        message = (
            self.message if phase is None else f"{phase}, iteration {self.details.get('iteration')}: {self.message}"
        )
        return f"{self.span}: {message}" if self.span is not None else message

    def render(self) -> str:
        """The diagnostic as text: code and message, span with excerpt and caret, hint, program frames."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.span is not None:
            at = f"{self.span.source.place}:{self.span.line}:{self.span.column}"
            lines += [f"  --> {at}", _indent(self.span.excerpt())]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        if self.frames:
            lines.append("  called from:")
            half = MAX_FRAMES // 2
            for index, frame in enumerate(self.frames):
                if self.frames_dropped and index == half:
                    lines.append(f"    ... {self.frames_dropped} calls more ...")
                where = f" at {frame.span}" if frame.span is not None else ""
                lines.append(f"    {frame.name}{where}")
        for note in getattr(self, "__notes__", []):
            lines.append(f"  note: {clip(str(note), 500)}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form for ``--json`` output and events."""
        return {
            "code": self.code,
            "message": self.message,
            "reason": self.reason,
            "span": self.span.to_dict() if self.span is not None else None,
            "hint": self.hint,
            "details": self.details,
            "frames": [{"name": f.name, "span": f.span.to_dict() if f.span else None} for f in self.frames],
        }


def copied_error(error: AgentflowError) -> AgentflowError:
    """A copy of an error that may be raised several times: frames, details and sources that are added on its way belong to one raise."""
    from agentflow.core.data.fields import slots_of

    copy = type(error).__new__(type(error), *error.args)
    grows = ("details", "frames", "__notes__", "_seen")  # a traceback is read on from where ``_seen`` says
    copy.__dict__.update({name: shallow.copy(each) if name in grows else each for name, each in vars(error).items()})
    copy.__cause__ = error.__cause__
    for slot in slots_of(type(error)).values():  # of classes written in C
        slot.__set__(copy, slot.__get__(error))
    return copy.with_traceback(error.__traceback__)


def _indent(text: str) -> str:
    return "\n".join("   " + line for line in text.split("\n"))


class SexpSyntaxError(AgentflowError):
    """The text cannot be read as a program."""

    default_code = "syntax/invalid"
    default_reason = "input_validation_failure"


class SexpEvaluationError(AgentflowError):
    """The program is wrong: found at compile time (malformed forms) or at run time."""

    default_code = "eval/error"
    default_reason = "execution_halted"

    value: Any = None
    """The value of ``(raise v)``, if the program raised it."""


class UnboundSymbolError(SexpEvaluationError, NameError):
    """A name is not bound."""

    default_code = "name/unbound"


class RunStopped(AgentflowError):
    """An error that stops a run: no ``catch``, ``race`` or ``retry`` of a program handles it, no task or tool turns it into
    a result, no record keeps it."""

    default_reason = "execution_halted"


class LimitExceeded(RunStopped):
    """A limit of the run was met. Programs cannot catch it.

    Parameters: ``limit`` names it (``steps``, ``wall_s``, ``depth``, ``tokens``, ...), ``used`` and ``allowed`` are in
    its unit.
    """

    default_code = "limits/exceeded"

    def __init__(
        self,
        message: str,
        *,
        limit: str,
        allowed: float,
        used: float | None = None,
        code: str | None = None,
        span: Span | None = None,
        hint: str | None = None,
    ) -> None:
        self.limit = limit
        self.allowed = allowed
        self.used = used
        super().__init__(
            message,
            code=code or f"limits/{limit.removesuffix('_s').replace('_', '-')}",
            span=span,
            hint=hint or f"raise it with Limits({limit}=...) if the work is meant to need more",
            details={"limit": limit, "allowed": allowed, "used": used},
        )


class PurseEmpty(LimitExceeded):
    """Too little is left, in the present period, in the purse that pays for a run. Programs cannot catch it.

    The parameters are those of LimitExceeded; ``purse`` is the name of the purse, ``ends_at`` is when its period ends, in unix
    seconds, and None if it never does.
    """

    default_code = "limits/purse"

    def __init__(
        self,
        message: str,
        *,
        purse: str,
        ends_at: float | None,
        limit: str,
        allowed: float,
        used: float | None = None,
        hint: str | None = None,
    ) -> None:
        self.purse = purse
        self.ends_at = ends_at
        super().__init__(message, limit=limit, allowed=allowed, used=used, code=self.default_code, hint=hint)
        self.details.update(purse=purse, ends_at=ends_at)


class ChangeRefused(RunStopped):
    """A list, dict or set would be changed depending on data that a strict policy protects, which would reveal it. Programs
    cannot catch it.

    Whether it is raised may depend on other references to the container, so the program must not be able to continue after
    it.
    """

    default_code = "provenance/write"


class HostPanic(RunStopped):
    """Host code raised something other than an Exception: a panic of an extension in Rust, an exception class derived from
    BaseException.

    The state that the code has left behind is unknown, so its run ends; other runs continue.
    """

    default_code = "host/panic"


class StrayExit(AgentflowError):
    """Host code ended in a forbidden way: it called ``sys.exit``, or raised CancelledError without being cancelled.

    This is a failure of that code; neither the process nor the run ends because of it.
    """

    default_code = "host/stray-exit"


class WorkflowError(AgentflowError):
    """A misuse in a Python workflow: a forgotten ``await``, or a call used twice."""

    default_code = "python/misuse"


class UnawaitedAttribute(WorkflowError, AttributeError):
    """An attribute was read from a call without its ``await``."""

    default_code = "python/not-awaited"


class PythonOverlap(WorkflowError):
    """A Python workflow began a call while another one of the same branch was in flight."""

    default_code = "python/overlap"


class RunCancelled(AgentflowError):
    """The value of a run was asked for that had been left, and so cancelled, before its end."""

    default_code = "run/cancelled"
    default_reason = "execution_halted"


class ConfigurationError(AgentflowError):
    """A setting, a key or a model name is missing or wrong; the message names it."""

    default_code = "config/invalid"
    default_reason = "configuration_error"


class SessionBusy(AgentflowError):
    """A session was passed to a second run while the first is running."""

    default_code = "session/busy"
    default_reason = "dependency_error"


class DataError(AgentflowError):
    """Data from outside (a template file, a cassette, an index) is invalid."""

    default_code = "data/invalid"
    default_reason = "input_validation_failure"


class JournalError(AgentflowError):
    """A durable run cannot be stored, has another owner, or does not match its records."""

    default_code = "durable/failed"
    default_reason = "dependency_error"


UNRECORDED = (RunStopped, ConfigurationError, JournalError)
"""Errors that durable runs never record as outcomes: with a higher limit or another setting the effect might succeed."""


class PathDenied(AgentflowError):
    """A file tool refuses a path: outside the roots, protected, not a regular file, or not a valid name."""

    default_code = "files/denied"
    default_reason = "input_validation_failure"


class FileFailure(AgentflowError):
    """A file could not be read or written although the path is allowed."""

    default_code = "files/failed"
    default_reason = "tool_execution_error"


class CommandDenied(AgentflowError):
    """The command policy refuses a command, or it was not approved."""

    default_code = "commands/denied"
    default_reason = "input_validation_failure"


class SandboxUnavailable(AgentflowError):
    """A sandbox back-end is missing or failed its self-test; nothing was run."""

    default_code = "sandbox/unavailable"
    default_reason = "dependency_error"


class TaskError(AgentflowError):
    """A task, tool or model call failed.

    Parameters: ``kind`` is RESOURCE_EXHAUSTION, TASK_FAILURE, INVALID_OUTPUT or VALIDATION_ERROR; ``reason`` one of the
    task-failure reasons (``llm_error``, ``output_format_failure``, ...); ``details`` JSON data.
    """

    default_code = "task/failed"
    default_reason = "unexpected_error"
    default_kind: ClassVar[str] = "TASK_FAILURE"

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        reason: Reason | None = None,
        code: str | None = None,
        span: Span | None = None,
        hint: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.kind = kind or self.default_kind
        self._reason: Reason
        self._reason, kept = known_reason(reason or self.default_reason, details or {})
        super().__init__(message, code=code, span=span, hint=hint, details=dict(kept))

    @property
    def reason(self) -> Reason:
        return self._reason

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed if it is made again: the obstacle is temporary, or the answer had the wrong
        form.

        Decided by code and reason, which a recorded error has too.
        """
        return self.reason == "output_format_failure" or self.code in _MAY_PASS


_MAY_PASS = frozenset([
    *[f"provider/{each}" for each in ("rate-limited", "overloaded", "server-error", "incomplete-stream")],
    *[f"provider/{each}" for each in ("connection-lost", "connection-refused", "connect-timeout")],
    *[f"provider/{each}" for each in ("first-byte-timeout", "idle-timeout", "call-timeout")],
    "handler/timeout",
])  # fmt: skip


class ResourceExhausted(TaskError):
    """One task used up a resource: ``resource`` is context, output or turns; ``used`` and ``limit`` are in its unit.

    ``partial`` is the received part of an answer that was cut off, and ``model`` the model that wrote it.
    """

    default_code = "task/exhausted"
    default_reason = "execution_halted"
    default_kind = "RESOURCE_EXHAUSTION"
    partial: str = ""
    model: str = ""

    def __init__(self, message: str, *, resource: str, used: float, limit: float, hint: str | None = None) -> None:
        self.resource = resource
        self.used = used
        self.limit = limit
        super().__init__(message, hint=hint, details={"resource": resource, "metrics": {"used": used, "limit": limit}})


class InvalidOutput(TaskError):
    """The model's answer is not the required JSON, or violates the schema."""

    default_code = "task/invalid-output"
    default_reason = "output_format_failure"
    default_kind = "INVALID_OUTPUT"


class ProviderError(TaskError):
    """A model call failed.

    Parameters: ``status`` the HTTP status (None without one), ``request_id`` the provider's, ``partial`` the text
    received before the failure (never a result), ``provider`` and ``model`` of the call, ``retry_after`` seconds
    the server asked to wait, ``attempts`` the number of attempts.
    """

    default_code = "provider/error"
    default_reason = "llm_error"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        partial: str = "",
        provider: str | None = None,
        model: str | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        hint: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.status = status
        self.request_id = request_id
        self.partial = partial
        self.provider = provider
        self.model = model
        self.retry_after = retry_after
        self.attempts = 1
        super().__init__(
            message,
            code=code,
            hint=hint,
            details={
                **(details or {}),
                "status": status,
                "request_id": request_id,
                "provider": provider,
                "model": model,
                "partial": clip(partial),
            },
        )
