"""The notes of a result, the description of its error, and its failed parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, cast

from agentflow.core.data.errors import AgentflowError, DataError, ResourceExhausted, TaskError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.mapping_records import Entries, Record
from agentflow.core.data.message_json import CONTENT_PARTS, read_part
from agentflow.core.data.messages import ContentPart
from agentflow.core.data.reasons import UNKNOWN_REASON, Reason, known_reason
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.values import name_of

_CODE = re.compile(r"[a-z][a-z0-9-]*/[a-z0-9-]+")
_CONTENT_TYPES = frozenset({kind.type for kind in CONTENT_PARTS})
_ERROR_FIELDS = ("type", "reason", "message", "details", "resource", "metrics")


@frozen(eq=False, repr=False)
class ErrorInfo(Entries):
    """The description of an error: ``notes["error"]`` of a FAILED result, a mapping of its set fields.

    ``type`` is TASK_FAILURE, RESOURCE_EXHAUSTION, INVALID_OUTPUT or VALIDATION_ERROR; ``reason`` one of
    :data:`~agentflow.core.data.reasons.REASONS`; ``details`` data for machines, with the stable ``code`` of ``docs/errors.md``; a code
    that a model's server gave is the ``provider_code``. A RESOURCE_EXHAUSTION also has the
    ``resource`` and its ``metrics`` ``{used, limit}``.
    """

    FIELDS: ClassVar[Mapping[str, str]] = MappingProxyType({name: name for name in _ERROR_FIELDS})

    message: str
    reason: Reason = "unexpected_error"
    type: str = "TASK_FAILURE"
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    resource: str | None = None
    metrics: Mapping[str, Any] | None = None

    @property
    def unknown_reason(self) -> str | None:
        """The reason as a host wrote it, if it is unlisted and :attr:`reason` is ``unexpected_error``; else None."""
        return self.details.get(UNKNOWN_REASON)

    def exception(self) -> TaskError:
        """Build an exception from the description, for a failure without one."""
        details = dict(self.details)
        hint = details.get("hint")
        told = hint if isinstance(hint, str) and hint else None
        code = details.get("code")
        stable = code if isinstance(code, str) and _CODE.fullmatch(code) else None
        return TaskError(self.message, kind=self.type, reason=self.reason, code=stable, hint=told, details=details)

    @classmethod
    def of(cls, value: object, message: str = "the task failed") -> ErrorInfo:
        """``value`` as a description: a description unchanged, a mapping of its entries, or the message alone.

        Unknown entries go into the details. ``message`` is the default message. Raises DataError (``data/fields``).
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls(value or message)
        if not isinstance(value, Mapping):
            raise DataError(
                f"an error is described by a mapping or a text, not by {type(value).__name__}",
                code="data/fields",
                hint=f"its entries are {', '.join(_ERROR_FIELDS)}",
            )
        entries = dict(cast(Mapping[str, Any], value))
        fields = {name: entries.pop(name) for name in _ERROR_FIELDS if name in entries}
        written: object = fields.get("details") or {}
        details = cast(Mapping[str, Any], written) if isinstance(written, Mapping) else {"details": written}
        reason, details = known_reason(fields.get("reason") or "unexpected_error", {**details, **entries})
        metrics = fields.get("metrics")
        return cls(
            str(fields.get("message") or message),
            reason,
            str(fields.get("type") or "TASK_FAILURE"),
            details,
            None if fields.get("resource") is None else str(fields["resource"]),
            cast(Mapping[str, Any], metrics) if isinstance(metrics, Mapping) else None,
        )

    @classmethod
    def of_exception(cls, error: BaseException, reason: Reason | None = None) -> ErrorInfo:
        """The description of an exception; ``reason`` replaces its own."""
        if not isinstance(error, AgentflowError):
            message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            details = {"exception": type(error).__name__, "code": "host/raised"}
            return cls(clip(message), reason or "unexpected_error", details=details)
        reason, details = known_reason(reason or error.reason, {**error.details, "code": error.code})
        if error.hint:
            details = {**details, "hint": error.hint}
        kind = error.kind if isinstance(error, TaskError) else "TASK_FAILURE"
        if not (isinstance(error, ResourceExhausted) or kind == "RESOURCE_EXHAUSTION"):
            return cls(error.message, reason, kind, details)
        resource, metrics = error.details.get("resource", "context"), error.details.get("metrics", {})
        return cls(error.message, reason, kind, details, resource, metrics)


@frozen(eq=False)
class FailedPart(Record):
    """A failed part of a whole: ``part`` is its name as the caller wrote it, ``error`` says why it failed.

    ``exception`` is the exception behind it, or None; it is not an entry of the mapping.
    """

    part: str
    error: ErrorInfo
    exception: BaseException | None = field(default=None, repr=False, kw_only=True)

    @classmethod
    def of(cls, value: object) -> FailedPart:
        """``value`` as a failed part: a FailedPart, or a mapping of ``part`` and ``error``. Raises DataError."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            entries = cast(Mapping[str, Any], value)
            part = entries.get("part")
            if isinstance(part, str) and set(entries) <= {"part", "error"}:
                return cls(part, ErrorInfo.of(entries.get("error") or "", f"{part} failed"))
        raise DataError(
            "a failed part is a mapping of 'part', a text, and 'error', which describes the failure",
            code="data/fields",
        )

    @classmethod
    def of_exception(cls, part: str, error: BaseException) -> FailedPart:
        """A failed part called ``part``, from its exception."""
        return cls(part, ErrorInfo.of_exception(error), exception=error)

    def __reduce__(self) -> tuple[Any, ...]:
        return FailedPart, (self.part, self.error)


@frozen(eq=False, repr=False)
class Notes(Entries):
    """The notes of a result: a frozen mapping, with fields for the entries that agentflow itself uses.

    All other entries are in ``others``. ``ending`` is not an entry: with it, the result of a tool ends the task of the calling model
    (:mod:`agentflow.core.call.endings`). ``parse_error`` has the key ``parseError``; a None field is not an
    entry.
    """

    FIELDS: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "template_used": "template_used",
            "context_source": "context_source",
            "context_files_count": "context_files_count",
            "model": "model",
            "turns": "turns",
            "program": "program",
            "subtask_request": "subtask_request",
            "parseError": "parse_error",
            "failed_parts": "failed_parts",
            "parts": "parts",
            "error": "error",
        }
    )

    error: ErrorInfo | None = None
    parse_error: str | None = None
    failed_parts: tuple[FailedPart, ...] | None = None
    parts: tuple[ContentPart, ...] | None = None
    subtask_request: SubtaskRequest | None = None
    template_used: str | None = None
    context_source: str | None = None
    context_files_count: int | None = None
    model: str | None = None
    turns: int | None = None
    program: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ending: Any = field(default=None, repr=False)

    def __getitem__(self, key: str) -> Any:
        name = self.FIELDS.get(key)
        value = None if name is None else getattr(self, name)
        return self.others[key] if value is None else value

    def __iter__(self) -> Iterator[str]:
        return chain(Entries.__iter__(self), self.others)

    def merged(self, entries: Mapping[str, Any]) -> Notes:
        """A copy of these notes, updated with ``entries``."""
        return Notes.of({**self, **entries})

    def to_dict(self) -> dict[str, Any]:
        """The notes as a plain dict, with agentflow's own entries as dicts too."""
        entries = {key: dict(entry) if isinstance(entry, Entries | Record) else entry for key, entry in self.items()}
        if self.failed_parts is not None:
            entries["failed_parts"] = [{"part": each.part, "error": dict(each.error)} for each in self.failed_parts]
        return entries

    @classmethod
    def of(cls, value: object) -> Notes:
        """``value`` as notes: Notes unchanged, or a mapping with text keys.

        An entry with a field's name but the wrong type is kept among the others. Raises DataError (``data/fields``) for
        anything but a mapping, and for an invalid error, failed part or request.
        """
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise DataError(f"notes are a mapping, not {type(value).__name__}", code="data/fields")
        fields: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for key, entry in cast(Mapping[object, Any], value).items():
            name = key if type(key) is str else name_of(key)
            if name is None:
                raise DataError(f"the keys of notes are texts, not {type(key).__name__}", code="data/fields")
            read = _READERS.get(name) if entry is not None else None
            if read is None or (note := read(entry)) is None:
                others[name] = entry
            else:
                fields[cls.FIELDS[name]] = note
        return cls(**fields, others=others)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _parts(value: object) -> tuple[FailedPart, ...] | None:
    if not isinstance(value, list | tuple):
        raise DataError(f"failed_parts is a list, not {type(value).__name__}", code="data/fields")
    return tuple(map(FailedPart.of, cast(list[object], value))) or None


def _request(value: object) -> SubtaskRequest | None:
    return SubtaskRequest.of(cast(object, value)) if isinstance(value, Mapping) else None


def _content(value: object) -> tuple[ContentPart, ...] | None:
    """Parts for a model, as objects or as JSON data; anything else under that name is left alone."""
    items = cast(list[object], value) if isinstance(value, list | tuple) else []
    tagged = [
        isinstance(each, Mapping) and cast(Mapping[Any, Any], each).get("type") in _CONTENT_TYPES for each in items
    ]
    parts = [read_part(each) if is_data else each for each, is_data in zip(items, tagged, strict=True)]
    return cast(Any, tuple(parts)) if parts and all([isinstance(part, CONTENT_PARTS) for part in parts]) else None


_READERS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "template_used": _text,
        "context_source": _text,
        "context_files_count": _count,
        "model": _text,
        "turns": _count,
        "program": _text,
        "subtask_request": _request,
        "parseError": str,
        "failed_parts": _parts,
        "parts": _content,
        "error": ErrorInfo.of,
    }
)
