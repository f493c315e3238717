"""Questions of a run to the outside: a question of its program, or an approval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.events.journal_rows import effect_key


@frozen
class ExternalCall:
    """The tool call of a question: ``name`` and ``arguments`` of the call, and ``call_id``, that of the model's
    tool call if a model asked for it. If someone else carries it out, the answer to its question is the result."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str | None = None

    @classmethod
    def of(cls, data: object) -> ExternalCall | None:
        """A call from its JSON data; None for anything else."""
        if not isinstance(data, Mapping):
            return None
        fields = cast(Mapping[str, Any], data)
        return cls(str(fields["name"]), fields["arguments"], fields.get("call_id"))


@frozen
class LimitReached:
    """The limit that a run waits at: its ``name``, the amount ``used`` and the amount ``allowed``, in the limit's unit."""

    name: str
    used: float
    allowed: float

    @classmethod
    def of(cls, data: object) -> LimitReached | None:
        """A limit from its JSON data; None for anything else."""
        if not isinstance(data, Mapping):
            return None
        fields = cast(Mapping[str, Any], data)
        return cls(str(fields["name"]), fields["used"], fields["allowed"])


@frozen(kw_only=True)
class Question:
    """An open question of a run.

    ``question`` is the text, safe to show for an approval; ``schema`` the JSON Schema of the answer (None: any data);
    ``reason`` says whether the program asks or waits for a signal, a tool needs an approval, which is ``true`` or ``false``, or the run waits at a ``limit``, which
    the host may raise: the answer is the new limit, or None to end the run. ``run_id`` and
    ``path`` locate the call; ``key`` is the key for ``flow.send``, which follows from the path unless there is an ``own_key``. ``external`` is the call of an external tool, with the answer as
    its result; ``call`` is the call to approve, if its arguments may be edited; ``signal`` is the name of the signal that the program
    waits for.
    """

    question: str
    schema: Mapping[str, Any] | None = None
    reason: Literal["question", "approval", "limit", "signal"] = "question"
    run_id: str = ""
    path: str = ""
    external: ExternalCall | None = None
    call: ExternalCall | None = None
    limit: LimitReached | None = None
    signal: str | None = None
    own_key: str = ""

    @property
    def key(self) -> str:
        """The key of the question within its run, in hexadecimal. Under a strict policy it tells nothing of arms."""
        return self.own_key or question_key(self.path)


def question_key(identity: str) -> str:
    """The key of the question of the call with this identity."""
    return effect_key(identity).hex()


Answerer: TypeAlias = Callable[[Question], Any | Awaitable[Any]]
"""Answers the questions of programs; plain or async. Returns the answer, which must fit the question's schema.

It is called with one question of a run at a time, unless it has a true attribute ``concurrent``.
"""
