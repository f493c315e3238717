"""Task results: the frozen results of task and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from agentflow.core.data.errors import DataError, InvalidOutput, cut
from agentflow.core.data.frozen import frozen, slot_setters
from agentflow.core.data.mapping_records import Record
from agentflow.core.data.message_json import CONTENT_PARTS
from agentflow.core.data.messages import ContentPart, Usage, text_of_parts
from agentflow.core.data.reasons import Reason, known_reason
from agentflow.core.data.result_notes import ErrorInfo, FailedPart, Notes
from agentflow.core.data.values import json_work, plain, to_json
from agentflow.core.data.walk import Work

Status: TypeAlias = Literal["COMPLETE", "CONTINUATION", "FAILED"]
_STATUSES = frozenset({"COMPLETE", "CONTINUATION", "FAILED"})

NO_USAGE = Usage()
"""Zero usage; compare with ``is`` to skip an addition."""
NO_NOTES = Notes()
"""Empty notes."""
_KEYS = ("status", "content", "parsedContent", "criteria", "notes")
_SHAPE = frozenset({*_KEYS, "parsed_content"})
_OF_FAILURES = frozenset({"content", "message", "error", "notes"})
"""Keys that make a dict with status FAILED a failed result, no matter its other keys."""
_LIKE_FAILED = frozenset({"failed", "failure", "fail", "error"})
_SMALL = 10**15


# A failure is a value with its exception, so that one call of forty may fail alone (decision 2)
@frozen(init=False, eq=False, match_args=False)
class TaskResult(Record):
    """The result of a task or tool call: a frozen record, and a mapping in the specification's shape.

    ``status`` is COMPLETE, CONTINUATION (a subtask is wanted: ``notes.subtask_request``) or FAILED; ``content`` the text;
    ``parsedContent`` (``parsed_content`` in Python) the data where the output is data; ``criteria`` free; ``notes`` a
    mapping, in a FAILED one with ``notes["error"] = {type, reason, message, details}``. ``usage`` is its cost in tokens,
    ``exception`` the exception behind a failure; equality ignores these two. Use :meth:`of` for values of hosts and models,
    ``dataclasses.replace`` or :meth:`with_notes` for a changed one.
    """

    __match_args__: ClassVar[tuple[str, ...]] = _KEYS

    status: Status
    content: str
    parsed_content: Any
    criteria: str | None
    notes: Notes
    usage: Usage = field(repr=False)
    exception: BaseException | None = field(repr=False)

    def __init__(
        self,
        status: Status = "COMPLETE",
        content: str = "",
        parsed_content: Any = None,
        criteria: str | None = None,
        notes: Mapping[str, Any] = NO_NOTES,
        usage: Usage = NO_USAGE,
        exception: BaseException | None = None,
        *,
        parsedContent: Any = None,
    ) -> None:
        if status not in _STATUSES or not isinstance(content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _misshapen(status, content)
        if notes.__class__ is not Notes:
            notes = Notes.of(notes)
        if status == "FAILED" and cast(Notes, notes).error is None:
            notes = replace(cast(Notes, notes), error=ErrorInfo(content or "the task failed"))
        _set_status(self, status)
        _set_content(self, content)
        _set_parsed(self, parsedContent if parsed_content is None else parsed_content)
        _set_criteria(self, criteria)
        _set_notes(self, notes)
        _set_usage(self, usage)
        _set_exception(self, exception)

    def __getitem__(self, key: str) -> Any:
        return Record.__getitem__(self, "parsedContent" if key == "parsed_content" else key)

    def __copy__(self) -> TaskResult:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling and deep copying keep everything but the exception, which the notes describe."""
        return TaskResult, (self.status, self.content, self.parsed_content, self.criteria, self.notes, self.usage)

    def to_dict(self) -> dict[str, Any]:
        """The specification's shape, as a plain dict: status, content, parsedContent, criteria, notes."""
        return {**self, "notes": self.notes.to_dict()}

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]:
        """:meth:`to_dict`; with ``mode="json"`` as JSON data."""
        return plain(self) if mode == "json" else self.to_dict()

    @property
    def parsedContent(self) -> Any:
        """``parsed_content`` under the specification's name."""
        return self.parsed_content

    @property
    def failed(self) -> bool:
        """Whether the status is FAILED."""
        return self.status == "FAILED"

    @property
    def task(self) -> str | None:
        """The name of the task that gave it: after a handoff the last one. None for other results."""
        return self.notes.template_used

    @property
    def failed_parts(self) -> tuple[FailedPart, ...]:
        """The named parts that failed although the whole is COMPLETE; :meth:`value` raises the error of the first."""
        return self.notes.failed_parts or ()

    @property
    def error(self) -> BaseException | None:
        """The exception behind a FAILED result: the original where there was one, else one that its notes describe."""
        if self.status != "FAILED":
            return None
        return self.exception or cast(ErrorInfo, self.notes.error).exception()

    def value(self) -> Any:
        """The parsed content, or the content, of a COMPLETE result.

        Raises the error of a FAILED one, InvalidOutput when JSON was asked for and did not come, and the error of the
        first of its failed parts.
        """
        problem = self.problem()
        if problem is not None:
            raise problem
        return self.content if self.parsed_content is None else self.parsed_content

    def problem(self) -> BaseException | None:
        """The exception that :meth:`value` raises; None if it returns the value."""
        notes = self.notes
        if self.status == "FAILED":
            return self.error
        if notes.parse_error is not None:
            return self.exception or InvalidOutput(
                f"the answer is not the JSON asked for: {_beginning(self.content)}",
                details={"content": cut(self.content, 2_000), "parse_error": notes.parse_error},
                hint="the content of the result is the text that the model sent; ask for a plainer format",
            )
        if notes.failed_parts:
            first = notes.failed_parts[0]
            return first.exception or first.error.exception()
        return None

    def with_notes(self, **entries: Any) -> TaskResult:
        """This result with these notes set, which win over its own."""
        return replace(self, notes=self.notes.merged(entries))

    @classmethod
    def complete(cls, content: str = "", parsed: Any = None, **notes: Any) -> TaskResult:
        """A COMPLETE result with these notes."""
        return cls("COMPLETE", content, parsed, None, Notes.of(notes) if notes else NO_NOTES)

    @classmethod
    def failure(
        cls,
        reason: Reason,
        message: str,
        *,
        type: str = "TASK_FAILURE",
        details: Mapping[str, Any] | None = None,
        error: BaseException | None = None,
        **notes: Any,
    ) -> TaskResult:
        """A FAILED result; ``error`` is the exception behind it, kept unchanged."""
        reason_known, kept = known_reason(reason, details or {})
        info = ErrorInfo(message, reason_known, type, kept)
        return cls("FAILED", message, notes=Notes.of({**notes, "error": info}), exception=error)

    @classmethod
    def from_error(cls, error: BaseException, *, reason: Reason | None = None, **notes: Any) -> TaskResult:
        """The FAILED result of an exception, which it keeps; ``reason`` replaces the exception's own."""
        info = ErrorInfo.of_exception(error, reason)
        return cls("FAILED", info.message, notes=Notes.of({**notes, "error": info}), exception=error)

    @classmethod
    def of(cls, value: object, *, guess: bool = True) -> TaskResult:
        """``value`` as a result: one as it is, a mapping in its shape, or any plain value as a COMPLETE one.

        Text becomes the content; other data becomes JSON in the content and itself in ``parsedContent``. A text, image or
        document part, or a list of them, is shown to a model as it is (``notes.parts``), with its text as the content. A
        mapping with the status ``FAILED`` and any of ``content``, ``message``, ``error`` and ``notes`` is a failed result,
        and its other entries are details of the error. Without ``guess``, where the type of ``value`` is declared, a
        mapping is data. Raises DataError (``data/fields``) for a mapping that resembles a result but is not a valid one.
        """
        if type(value) is str:
            return cls("COMPLETE", value)
        if type(value) is int:
            return cls("COMPLETE", to_json(value) if abs(value) > _SMALL else str(value), value)
        if value is None:
            return cls()
        result = cls._of_other(value, guess)
        return cls("COMPLETE", to_json(value), value) if result is None else result

    @classmethod
    def of_data(cls, value: object, *, guess: bool = True) -> Work[TaskResult]:
        """The work of :meth:`of` for a list or dict, which may be large."""
        result = cls._of_other(value, guess)
        return cls("COMPLETE", (yield from json_work(value)), value) if result is None else result

    @classmethod
    def _of_other(cls, value: object, guess: bool) -> TaskResult | None:
        """``value`` as a result unless it is plain data."""
        if isinstance(value, TaskResult):  # not first: asking a mapping's class about another value takes long
            return value
        if isinstance(value, str):
            return cls("COMPLETE", str(value))
        if isinstance(value, BaseModel):
            return cls("COMPLETE", _json_of(value), value)
        parts = _content_parts(value)
        if parts:
            return cls("COMPLETE", text_of_parts(parts), notes=Notes(parts=parts))
        if guess and isinstance(value, Mapping):
            entries = cast(Mapping[str, Any], value)
            status = entries.get("status")
            if isinstance(status, str) and status in _STATUSES:
                keys = entries.keys()
                if keys <= _SHAPE or (status == "FAILED" and not keys.isdisjoint(_OF_FAILURES)):
                    return cls.from_mapping(entries)
        return None

    @classmethod
    def from_mapping(cls, entries: Mapping[str, Any]) -> TaskResult:
        """The result with the fields ``entries``; content other than text becomes JSON, and the parsed content.

        A failed result may also have ``message``, ``error`` and details of the error. Raises DataError (``data/fields``)
        naming the unknown or invalid fields.
        """
        if entries.get("status") == "FAILED":
            entries = _described(entries)
        unknown = [str(key) for key in entries if key not in _SHAPE]
        if unknown:
            raise DataError(
                f"a TaskResult has no '{unknown[0]}'", code="data/fields", hint=f"its keys are {', '.join(_KEYS)}"
            )
        content: Any = entries.get("content", "")
        parsed = entries.get("parsedContent", entries.get("parsed_content"))
        if content is not None and not isinstance(content, str):
            content, parsed = to_json(content), content if parsed is None else parsed
        criteria = entries.get("criteria")
        return cls(
            entries.get("status", "COMPLETE"),
            content or "",
            parsed,
            None if criteria is None else str(criteria),
            Notes.of(entries.get("notes") or {}),
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """In a pydantic model a result is itself or a dict in its shape, and is written as that."""
        entry = core_schema.typed_dict_field
        shape = core_schema.typed_dict_schema(
            {
                "status": entry(core_schema.literal_schema(sorted(_STATUSES))),
                "content": entry(core_schema.str_schema(), required=False),
                "parsedContent": entry(core_schema.any_schema(), required=False),
                "criteria": entry(core_schema.nullable_schema(core_schema.str_schema()), required=False),
                "notes": entry(core_schema.dict_schema(core_schema.str_schema()), required=False),
            },
            extra_behavior="forbid",
        )
        read = core_schema.no_info_after_validator_function(cls.from_mapping, shape)
        return core_schema.json_or_python_schema(
            read,
            core_schema.union_schema([core_schema.is_instance_schema(cls), read]),
            serialization=core_schema.plain_serializer_function_ser_schema(plain),
        )


_set_status, _set_content, _set_parsed, _set_criteria, _set_notes, _set_usage, _set_exception = slot_setters(TaskResult)


def warn_of_failure(result: TaskResult, warn: Callable[[str, str], None]) -> TaskResult:
    """Return ``result``, which a host gave, unchanged; call ``warn`` (:meth:`CallContext.warn`) if it has an unknown reason,
    or is data that reads like a failure and is none."""
    if result.status == "FAILED":
        error = cast(ErrorInfo, result.notes.error)
        if error.unknown_reason is not None:
            said = f"'{error.unknown_reason}' is no reason of a failure; it counts as unexpected_error"
            warn("task/unknown-reason", said)
    elif type(cast(object, result.parsed_content)) is dict:
        data = cast("dict[str, Any]", result.parsed_content)
        status = data.get("status")
        if (
            isinstance(status, str)
            and status.strip().lower() in _LIKE_FAILED
            and not data.keys().isdisjoint(_OF_FAILURES)
        ):
            warn(
                "task/reads-like-failure",
                f"a dict with the status {cut(status, 20)!r} is data, and the call counts as done; a failure is raised, or is "
                '{"status": "FAILED", "content": "what went wrong"}',
            )
    return result


def _json_of(value: BaseModel) -> str:
    try:
        return value.model_dump_json()
    except ValueError:  # for example bytes without a text form
        return to_json(value)


def _described(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a failed result; any other entry describes its error."""
    shaped = {key: entry for key, entry in entries.items() if key in _SHAPE}
    if len(shaped) == len(entries):
        return shaped
    details = {key: entry for key, entry in entries.items() if key not in _SHAPE and key not in _OF_FAILURES}
    error = entries.get("error")
    info = ErrorInfo.of(error, "") if error is not None else ErrorInfo("")
    said = [entries.get("message"), info.message, entries.get("content")]
    texts = [each if isinstance(each, str) else to_json(each) for each in said if each not in (None, "")]
    if isinstance(error, str) and texts[0] != error:
        details["error"] = error
    notes = Notes.of(entries.get("notes") or {})
    info = notes.error or replace(info, message=texts[0] if texts else "the task failed")
    if not shaped.get("content"):
        shaped["content"] = info.message
    return {**shaped, "notes": notes.merged({"error": replace(info, details={**info.details, **details})})}


def _content_parts(value: object) -> tuple[ContentPart, ...]:
    """The parts for a model that ``value`` is, or is a list of; none for anything else."""
    if isinstance(value, CONTENT_PARTS):
        return (value,)
    items = cast(list[Any], value) if isinstance(value, list | tuple) else ()
    if not items or not isinstance(items[0], CONTENT_PARTS):
        return ()
    return tuple(items) if all([isinstance(item, CONTENT_PARTS) for item in items]) else ()


def _misshapen(status: object, content: object) -> DataError:
    if isinstance(content, str):
        said = f"the status of a TaskResult is COMPLETE, CONTINUATION or FAILED, not {status!r}"
    else:
        said = f"the content of a TaskResult is text, not {type(content).__name__}"
    return DataError(said, code="data/fields", hint="data goes into parsedContent; TaskResult.of takes any value")


def _beginning(text: str) -> str:
    """The beginning of an answer, for a message."""
    line = " ".join(text[:400].split())
    if not line:
        return "it is empty"
    shown = line if len(line) <= 80 and len(text) <= 400 else f"{line[:77]}..."
    return f"it begins with {shown!r}"
