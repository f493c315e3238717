"""Procedures as JSON: the text of a closure with its captured values, to be run elsewhere.

``{"v": 2, "root": 0, "closures": [{"name", "source", "text", "grants", "bindings", "templates"}]}``: each closure is its
lambda's text, the names it may call (null: the host's own authority), the values of the variables it uses from outside,
lexical or of the environment, and the tasks that programs defined and its text names, as ``{name: {"fields", "grants"}}``.
Version 1 lacked a closure's authority and called the templates ``tasks``. Numbers, strings, booleans, null, lists and
objects stand for themselves; ``{"$symbol": name}``, ``{"$float": "inf"}``, ``{"$primitive": name}``, ``{"$closure":
index}`` and ``{"$dict": [[key, value], ...]}`` (for keys that begin with ``$`` or are not strings) for the rest. A closure
of a Python text has ``"surface": "python"``; ``"presence"`` are the sources, by name, that it depends on under a strict policy
whether a variable has a value; tuples and sets that it captured are ``{"$tuple": [...]}`` and ``{"$set":
[...]}``. Variables are copied: two closures that share one no longer do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, cast, get_args

from agentflow.core.data.errors import DataError, SexpEvaluationError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ASKED, Names, Template, narrowed
from agentflow.core.data.labels import NO_SOURCES, UNKNOWN, Following, Label, Sources, box, strip
from agentflow.core.data.limits import Limits
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.values import MAX_DATA_DEPTH, OrderedSet, SharedList, Symbol
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.closure import Closure
from agentflow.lang.environment import UNBOUND, Cell, NamesInForce, SexpEnvironment
from agentflow.lang.printer import print_value
from agentflow.lang.program import ProgramCache, compile_program
from agentflow.lang.trace import captured_by

VERSION = 2


def dump_closure(closure: Closure) -> dict[str, Any]:
    """``closure`` as JSON data.

    Raises SexpEvaluationError (``closure/not-data``) naming the variable with a value other than data or a procedure of
    the language, and ``closure/macro`` when a macro made part of its body.
    """
    dump = _Dump()
    dump.index(closure)
    position = 0
    while position < len(dump.closures):
        dump.describe(position)
        position += 1
    return {"v": VERSION, "root": 0, "closures": dump.entries}


def captured(closure: Closure) -> dict[str, Any]:
    """The variables from outside that a closure uses, with their present values; uninitialised ones are left out."""
    if closure.info.follows == "strict":
        from agentflow.lang.kernel.machine_calls import captured as captured_there  # few flows have such a policy

        values = captured_there(closure)
        if values is not None:
            return values
    if closure.info.source.surface == "python":
        from agentflow.lang.python import portable as python  # Most processes never see such a text.

        return python.captured(closure)
    entries: dict[str, Any] = {}
    for info, py, value in captured_by(closure.raw):
        if py in info.cells:
            held = cast(Cell, value).v
            if held is not UNBOUND:
                entries[info.cells[py]] = held
        elif py in info.lambdas and callable(value):
            lam = info.lambdas[py]
            if lam.name:
                count = -1 if lam.rest else len(lam.params)
                entries[lam.name] = Closure(cast(Any, value), count, lam, closure.env, closure.grants)
        elif py in info.names and not py.startswith(("code_", "closure_")) and value is not UNBOUND:
            entries[info.names[py]] = value
    return entries


def _tasks_of(closure: Closure) -> dict[str, Template]:
    """The tasks of a closure's environment that its text names, as a call or as data, and those that their texts name."""
    defined = closure.env.tasks()
    entries: dict[str, Template] = {}
    pending = [closure.info.text] if defined else []
    while pending:
        text = pending.pop()
        words = set(_WORD.findall(text))
        if closure.info.source.surface == "python":
            words.update(name for word in _PYTHON_WORD.findall(text) for name in (word, word.replace("_", "-")))
            words.update(name for name in defined if name.startswith(ASKED) and "ask" in words)
        for name in (defined.keys() & words) - entries.keys():
            entries[name] = defined[name]
            pending.extend(text for text in defined[name].fields.values() if isinstance(text, str))
    return entries


_PYTHON_WORD = re.compile(r"\w+")
_WORD = re.compile(r"""[^\s()\[\]{}"'`,;]+""")


class _Dump:
    def __init__(self) -> None:
        self.closures: list[Closure] = []
        self.entries: list[dict[str, Any]] = []
        self.known: dict[tuple[int, int], int] = {}

    def index(self, closure: Closure) -> int:
        """The number of a closure; the same code with the same variables is the same closure."""
        key = closure.identity
        if key not in self.known:
            self.known[key] = len(self.closures)
            self.closures.append(closure)
        return self.known[key]

    def describe(self, position: int) -> None:
        closure = self.closures[position]
        info = closure.info
        if not info.portable:
            raise SexpEvaluationError(
                f"{info.name or 'this lambda'} is not its text alone: a macro or case-lambda is part of it",
                code="closure/macro",
                span=info.span,
                hint="write it as a lambda",
            )
        bindings = {name: self.encode(value, name, closure, 0) for name, value in captured(closure).items()}
        presence: dict[str, Any] = {}
        if info.follows == "strict":
            from agentflow.lang.kernel.machine_calls import presence as presence_there

            presence = {name: sorted(sources) for name, sources in presence_there(closure).items()}
        templates = {
            name: {"fields": dict(task.fields), "grants": _listed(task.grants)}
            for name, task in _tasks_of(closure).items()
        }
        entry = {
            "name": info.name,
            "source": info.source.name,
            "text": info.text,
            "grants": _listed(closure.grants),
            "bindings": bindings,
            "templates": templates,
            **({"followed": info.follows} if info.follows else {}),
            **({"presence": presence} if presence else {}),
        }
        if info.source.surface == "python":
            from agentflow.lang.python.portable import portable_text  # Most processes never see such a text.

            entry |= {"surface": "python", "text": portable_text(closure)}
        self.entries.append(entry)

    def encode(self, value: Any, name: str, closure: Closure, depth: int) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, Symbol):
            return {"$symbol": value.name}
        if isinstance(value, Primitive):
            return {"$primitive": value.name}
        if isinstance(value, Closure):
            return {"$closure": self.index(value)}
        if type(value) is Label:
            return {"$labelled": [sorted(value.sources), self.encode(value.value, name, closure, depth)]}
        if depth < MAX_DATA_DEPTH // 4:
            if closure.info.source.surface == "python" and isinstance(value, tuple | OrderedSet):
                tag = "$tuple" if isinstance(value, tuple) else "$set"
                items = list(cast("tuple[Any, ...]", value))
                return {tag: [self.encode(each, name, closure, depth + 1) for each in items]}
            if isinstance(value, list | tuple | SharedList):
                return [self.encode(each, name, closure, depth + 1) for each in cast("list[Any]", value)]
            if is_dict(value):
                pairs = value
                if all(isinstance(key, str) and not key.startswith("$") for key in pairs):
                    return {key: self.encode(each, name, closure, depth + 1) for key, each in pairs.items()}
                return {
                    "$dict": [
                        [self.encode(key, name, closure, depth + 1), self.encode(each, name, closure, depth + 1)]
                        for key, each in pairs.items()
                    ]
                }
        raise SexpEvaluationError(
            f"'{name}', which {closure.name or 'the lambda'} uses, is {print_value(value, limit=80)}: it is not data",
            code="closure/not-data",
            span=closure.span,
            hint="pass it as an argument, or let the closure use data only",
        )


def load_closure(
    data: Any,
    *,
    names: Names | None = None,
    limits: Limits | None = None,
    grants: Iterable[str] | None = None,
    cache: ProgramCache | None = None,
    labelled: Following = False,
) -> Closure:
    """The closure that :func:`dump_closure` described, with the authority it had.

    ``names`` returns the meanings of its free names, and makes the tasks it carries (see compile_program). ``grants``
    narrow the calls of it and its tasks. A dump of version 1 lacks the grants of its author: it may call ``grants``, and
    nothing without them. ``cache`` keeps compiled code for other dumps of the same text; ``labelled``: it is to run in a
    flow with a policy; values captured without tracking, or with less, then come from ``unknown``. Raises DataError (``closure/data``) for
    any other data, and the errors of compiling its text or making its tasks.
    """
    ceiling = None if grants is None else frozenset(grants)
    try:
        entries: list[dict[str, Any]] = data["closures"]
        if data["v"] == 1:
            ceiling = ceiling or frozenset()
            entries = [{**each, "grants": None, "templates": each.get("tasks") or {}} for each in entries]
        elif data["v"] != VERSION:
            raise KeyError("v")
        closures: list[Closure] = []
        for entry in entries:
            env = SexpEnvironment()
            program = compile_program(
                Source(str(entry["source"]), str(entry["text"]), _surface(entry.get("surface", "sexp"))),
                names=_with_tasks(env, entry["templates"], names, ceiling),
                limits=limits,
                env_names={*entry["bindings"], *entry.get("presence", ())},
                cache=cache,
                labelled=labelled,
            )
            value = _run(program.link(env), narrowed(_granted(entry["grants"]), ceiling))
            if not isinstance(value, Closure):
                raise TypeError("text")
            closures.append(value)
        for entry, closure in zip(entries, closures, strict=True):
            for name, value in entry["bindings"].items():
                decoded = _decode(value, closures)
                unknown = labelled and entry.get("followed") not in (labelled, "strict")
                if unknown and not isinstance(decoded, Closure | Primitive):
                    decoded = box(decoded, UNKNOWN)
                closure.env.own(name).v = decoded if labelled else strip(decoded)[0]
            for name, sources in entry.get("presence", {}).items():
                closure.env.note_presence(name, frozenset(sources))
        root: int = data["root"]
        return closures[root]
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, RecursionError) as error:
        raise DataError(
            f"this is not a closure written by dump_closure: {type(error).__name__}: {error}",
            code="closure/data",
            hint="pass the unchanged output of dump_closure",
        ) from error


def _listed(grants: frozenset[str] | None) -> list[str] | None:
    return None if grants is None else sorted(grants)


def _surface(surface: Any) -> Surface:
    if surface not in get_args(Surface):
        raise TypeError("surface")
    return surface


def _granted(names: Any) -> frozenset[str] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all([isinstance(each, str) for each in cast("list[Any]", names)]):
        raise TypeError("grants")
    return frozenset(cast("list[str]", names))


def _with_tasks(
    env: SexpEnvironment, tasks: dict[str, Any], names: Names | None, ceiling: frozenset[str] | None
) -> Names | None:
    """Define the tasks a closure brings in its environment, within ``ceiling``; gives the names it finds then."""
    if not tasks:
        return names
    if names is None:
        raise DataError(
            f"the closure brings tasks ({', '.join(sorted(tasks))}), and nothing is here to make them",
            code="closure/data",
            hint="give names=, for example flow.engine.names()",
        )
    for task in tasks.values():
        env.define_task(names.prepare(task["fields"]).granted(narrowed(_granted(task["grants"]), ceiling)))
    return NamesInForce(names, defined=env)


@frozen
class _Author:
    """The only parts of a strand that creating a procedure needs: the authority in force, and that nothing has been tested."""

    grants: frozenset[str] | None
    ambient: Sources = NO_SOURCES
    trying: int = 0


def _run(main: Any, grants: frozenset[str] | None) -> Any:
    """The value of a program of one lambda: it neither waits nor needs a strand."""
    work = main(_Author(grants), 0)
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    finally:
        work.close()
    raise TypeError("text")


def _decode(value: Any, closures: list[Closure]) -> Any:
    if isinstance(value, list):
        return [_decode(each, closures) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    entries = cast("dict[str, Any]", value)
    if len(entries) == 1:
        (key, inner), *_ = entries.items()
        if key == "$symbol":
            return Symbol(inner)
        if key == "$float":
            return float(inner)
        if key == "$labelled":
            return box(_decode(inner[1], closures), frozenset(inner[0]))
        if key == "$primitive":
            return PRIMITIVES[inner]
        if key == "$tuple":
            return tuple(_decode(inner, closures))
        if key == "$set":
            return OrderedSet(_decode(inner, closures))
        if key == "$closure":
            number: int = inner
            return closures[number]
        if key == "$dict":
            return {_decode(k, closures): _decode(v, closures) for k, v in inner}
    return {key: _decode(each, closures) for key, each in entries.items()}
