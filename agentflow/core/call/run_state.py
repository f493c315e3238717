"""The state that a run shares with a front end and other readers: JSON data that tools read and change through ``ctx.state``.

Each change is an operation of JSON Patch (RFC 6902), published at once. A durable run records changes with the effect that made
them, so that a replay, which runs that code no more, makes them again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from copy import deepcopy
from typing import Any, Protocol, TypeAlias, cast

from agentflow.core.data.errors import DataError, clip
from agentflow.core.data.known_names import PUBLISH
from agentflow.core.data.values import plain_work, to_json
from agentflow.core.data.walk import finish
from agentflow.core.events.events import EventBase, StateChanged

Change: TypeAlias = dict[str, Any]
"""An operation of JSON Patch: ``add``, ``replace`` or ``remove``."""
Pointer: TypeAlias = tuple["str | int", ...]
_END = "-"
MOST_CHARACTERS = 256 * 1024
"""Most characters of the state of a run as JSON: all of it is shown to each reader."""


class StateHolder(Protocol):
    """The call that changes the state: a :class:`~agentflow.core.call.call.CallContext`."""

    run: Any
    path: str
    span: Any
    reading: Any

    def emit(self, kind: type[EventBase], /, **fields: Any) -> int:
        """Publish an event of the call."""
        ...


# Changes with stamps, not a comparison before and after: tools run side by side, and pages look on (decision 58)
class RunState:
    """The state of one run, which began with ``begun``. ``data`` is its present content.

    Changes have stamps that grow: those of a record are put where they were made, in any order of replay. In a durable run,
    ``noted`` are the changes in the order they were made or replayed here, each with its path and stamp; ``rebuilt`` counts the
    replays.
    """

    __slots__ = ("_begun", "_changes", "_last", "_lock", "_size", "data", "noted", "rebuilt")

    def __init__(self, begun: Mapping[str, Any]) -> None:
        self._begun: dict[str, Any] = data_of(begun)
        self.data: Any = deepcopy(self._begun)
        self._changes: dict[int, Change] = {}
        self.noted: list[tuple[str, int, Change]] = []
        self.rebuilt = 0
        self._last = 0
        self._size = MOST_CHARACTERS
        self._lock = threading.Lock()

    def change(self, call: StateHolder, change: Change, *, judged: bool = False) -> None:
        """Make a change for the code at ``call``, and publish it. Raises DataError (``state/too-large``), and, unless it was ``judged``
        before, the error of a policy that does not let people see what the code has read."""
        if call.reading is not None and not judged:
            call.reading.check(PUBLISH, call.span, call)
        journal = call.run.journal
        with self._lock:
            self._check_size(change)
            self.data = applied(self.data, change)
            if journal is not None:
                self._last = max(self._last + 1, time.time_ns())
                self._note(call.path, self._last, deepcopy(change))
        call.emit(StateChanged, changes=(change,))
        if journal is not None:
            journal.state_changed(self)

    def plain(self) -> Any:
        """A copy of its content."""
        with self._lock:
            return deepcopy(self.data)

    def _check_size(self, change: Change) -> None:
        """Raise DataError if the state would be too large. ``_size`` is at least its size; it is measured anew only where that passes
        the bound."""
        if "value" not in change:
            return
        new = len(to_json(change["value"])) + len(change["path"]) + 8
        if self._size + new > MOST_CHARACTERS:
            self._size = len(to_json(applied(deepcopy(self.data), change))) - new
        if self._size + new > MOST_CHARACTERS:
            raise DataError(
                f"the state of the run would have {self._size + new:,} characters as JSON, and {MOST_CHARACTERS:,} are allowed",
                code="state/too-large",
                hint="publish what readers see now: a count, the last lines; write the whole to a file and publish its name",
            )
        self._size += new

    def _note(self, path: str, stamp: int, change: Change) -> None:
        self._changes[stamp] = change
        self.noted.append((path, stamp, change))

    def within(self, path: str, since: int = 0) -> list[tuple[int, Change]]:
        """The changes made by the effect at ``path`` and those in it, with their stamps, among those that were noted ``since``."""
        inner = f"{path}/"
        return [
            (stamp, change) for where, stamp, change in self.noted[since:] if where == path or where.startswith(inner)
        ]

    def replay(self, path: str, changes: Iterable[tuple[int, Change]]) -> None:
        """Make the recorded changes of the effect at ``path`` again. One that does not fit any more is passed over."""
        with self._lock:
            for stamp, change in changes:
                self._note(path, stamp, change)
            self._changes = dict(sorted(self._changes.items()))
            self._last = max(self._changes, default=0)
            self.data = deepcopy(self._begun)
            self.rebuilt += 1
            for change in self._changes.values():
                self.data = applied(self.data, change)


def published(key: object, value: object) -> Any:
    """The value of a published key as JSON data. Raises DataError (``state/not-data``)."""
    if not isinstance(key, str):
        raise DataError(
            f"the keys of a run's state are texts, not {type(key).__name__}",
            code="state/not-data",
            hint="write await flow.publish('done', 3)",
        )
    return data_of(value)


def replacing(state: object) -> Change:
    """The change to ``state`` as a whole. Raises DataError (``state/not-data``)."""
    if not isinstance(state, Mapping):
        raise DataError(
            f"the state of a run is a mapping, not {type(state).__name__}",
            code="state/not-data",
            hint="write ctx.state = {'steps': []}, or ctx.state['steps'] = []",
        )
    return {"op": "replace", "path": "", "value": data_of(cast("Mapping[str, Any]", state))}


def publish(call: StateHolder, key: str, value: object) -> None:
    """Set a key of the state of the run at ``call``, for an effect. Raises as :meth:`RunState.change`."""
    state = state_of(call)
    path = f"/{key.replace('~', '~0').replace('/', '~1')}"
    state.change(
        call, {"op": "replace" if key in state.data else "add", "path": path, "value": data_of(value)}, judged=True
    )


def state_of(call: StateHolder) -> RunState:
    """The state of the run at ``call``."""
    shared = call.run.shared
    if shared.state is None:
        shared.state = RunState({})
    return cast(RunState, shared.state)


def applied(data: Any, change: Change) -> Any:
    """``data`` with a change, made in place where it can be; unchanged if it has no such place."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")[1:]]
    value = deepcopy(change.get("value"))
    if not parts:
        return value
    node: Any = data
    try:
        for part in parts[:-1]:
            node = node[int(part) if type(node) is list else part]
        _apply(node, parts[-1], change["op"], value)
    except (KeyError, IndexError, ValueError, TypeError):
        pass  # an earlier change was lost with the effect that was at work when the run was interrupted
    return data


def _apply(node: Any, name: str, op: str, value: Any) -> None:
    key = name if isinstance(node, dict) else len(node) if name == _END else int(name)
    if op == "remove":
        del node[key]
    elif op == "add" and isinstance(node, list):
        cast("list[Any]", node).insert(cast(int, key), value)
    else:
        node[key] = value


def data_of(value: object) -> Any:
    """``value`` as JSON data of its own. Raises DataError (``state/not-data``)."""
    return deepcopy(finish(plain_work(value, _no_data)))


def _no_data(value: object) -> Any:
    raise DataError(
        f"the state of a run is JSON data, and {clip(repr(value), 120)} is not",
        code="state/not-data",
        hint="assign texts, numbers, lists, dicts, dataclasses or pydantic models",
    )


class _StatePart:
    """A part of the state: the content that it had when it was read, wherever that stands now, as a dict or list of Python is.

    ``holder`` is the part around it, in which it stood at ``key``.
    """

    __slots__ = ("_call", "_content", "_holder", "_key", "_rebuilt", "_state")

    def __init__(
        self,
        state: RunState,
        call: StateHolder,
        holder: _StatePart | None = None,
        key: str | int = "",
        content: Any = None,
    ) -> None:
        self._state = state
        self._call = call
        self._holder = holder
        self._key = key
        self._content = content
        self._rebuilt = state.rebuilt

    def plain(self) -> Any:
        """A copy as plain dicts and lists."""
        return deepcopy(self._node())

    def _node(self) -> Any:
        if self._holder is None:
            return self._state.data
        if self._rebuilt != self._state.rebuilt:  # a replay made all content anew: only the place says which part it is
            self._content, self._rebuilt = self._holder._node()[self._key], self._state.rebuilt
        return self._content

    def _place(self) -> Pointer:
        """Where the part stands now. Raises DataError (``state/replaced``) if it is no longer in the state."""
        content, holder = self._node(), self._holder
        if holder is None:
            return ()
        around = cast("dict[str, Any] | list[Any]", holder._node())
        for key, value in around.items() if isinstance(around, dict) else enumerate(around):
            if value is content:
                return (*holder._place(), key)
        raise DataError(
            f"the part that was at {self._key!r} is no longer in the state of the run, so it cannot be changed there",
            code="state/replaced",
            hint="read it again: ctx.state['steps']",
        )

    def _shown(self, key: str | int, value: Any) -> Any:
        if isinstance(value, dict):
            return StateDict(self._state, self._call, self, key, value)
        return StateList(self._state, self._call, self, key, value) if isinstance(value, list) else value

    def _change(self, op: str, key: str | int, *value: object) -> None:
        path = "".join([f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in (*self._place(), key)])
        change: Change = {"op": op, "path": path}
        if value:
            change["value"] = data_of(value[0])
        self._state.change(self._call, change)

    def __len__(self) -> int:
        return len(self._node())

    def __eq__(self, other: object) -> bool:
        return bool(self._node() == (other._node() if isinstance(other, _StatePart) else other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return repr(self._node())


class StateDict(_StatePart, MutableMapping[str, Any]):
    """An object of the state. Each assignment to a key is published as a change."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Any:
        return self._shown(key, self._node()[key])

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DataError(
                f"the keys of a run's state are texts, not {type(key).__name__}",
                code="state/not-data",
                hint="write ctx.state['1'] = ...",
            )
        self._change("replace" if key in self._node() else "add", key, value)

    def __delitem__(self, key: str) -> None:
        self._node()[key]  # a KeyError, as of a dict
        self._change("remove", key)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._node()])

    # The methods that the base class would write with parts: what has been removed cannot be changed in the state

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The part at ``key``, which is ``default`` if there is none."""
        if key not in self._node():
            self[key] = default
        return self[key]

    def pop(self, key: str, *default: Any) -> Any:
        """Remove ``key``. Returns a copy of its content, or ``default``."""
        node = self._node()
        if key not in node and default:
            return default[0]
        content = deepcopy(node[key])
        del self[key]
        return content

    def popitem(self) -> tuple[str, Any]:
        """Remove the last key. Returns it with a copy of its content."""
        node = self._node()
        if not node:
            raise KeyError("the state is empty")
        key = next(reversed(node))
        return key, self.pop(key)


class StateList(_StatePart, MutableSequence[Any]):
    """A list of the state. Each addition, assignment and removal is published as a change."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return deepcopy(self._node()[index])
        return self._shown(self._index(index), self._node()[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._change("replace", self._index(index), value)

    def __delitem__(self, index: Any) -> None:
        self._change("remove", self._index(index))

    def insert(self, index: int, value: Any) -> None:
        """Insert ``value`` before ``index``, as a list does."""
        size = len(self)
        at = max(0, size + index) if index < 0 else min(index, size)
        self._change("add", _END if at == size else at, value)

    def pop(self, index: int = -1) -> Any:
        """Remove an item. Returns a copy of it."""
        content = deepcopy(self._node()[index])
        del self[index]
        return content

    def reverse(self) -> None:
        """Reverse the list in its place."""
        for at, content in enumerate(reversed(self.plain())):
            self[at] = content

    def _index(self, index: object) -> int:
        if not isinstance(index, int):
            raise DataError(
                "a part of a list in the state is changed by one index",
                code="state/not-data",
                hint="assign the whole list: ctx.state['steps'] = [...]",
            )
        return range(len(self))[index]
