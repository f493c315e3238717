"""Finds well-formed code that will certainly fail at run time, before anything runs.

Wrong numbers of arguments for primitives and procedures with a visible definition, unknown and missing parameters of
tasks and tools, unknown keys of the records they take, literals no parameter of that type accepts, and unbound names.
Only certain failures are reported: variables that change, names a host may still bind, and values other than
literals are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.data.context import CONTEXT_KEYS
from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.frozen import frozen, slotted
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.values import Symbol
from agentflow.lang import ir
from agentflow.lang.analyzer import LOOP_CONFIG, Analyzer
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.builtins.registry import describe_arity
from agentflow.lang.closure import Closure
from agentflow.lang.ir import IR, Lambda
from agentflow.lang.literals import literal, misfit, mismatch
from agentflow.lang.syntax import Node
from agentflow.lib.text.suggest import did_you_mean

_WORDS = {
    "print println printf display displayln echo puts": "(log-message value ...) writes to the log; the value of the last "
    "form is the program's",
    "def defn defun function": "write (define (name parameter ...) body ...)",
    "fn fun": "write (lambda (parameter ...) body ...)",
    "setq setf setv": "write (set! name value), or (define name value) for a new name",
    "var const val": "write (define name value)",
    "None null undefined NULL": "write nil",
    "True TRUE": "write true",
    "False FALSE": "write false",
    "return": "the value of a body is that of its last form",
    "await async": "nothing needs to be awaited; (parallel ...) and (pmap f list) run things at the same time",
    "for foreach doseq": "write (map f list), (for-each f list) or (do ...)",
    "elif elsif": "write (cond (test value) ... (else value))",
    "switch match": "write (case value ((key ...) result) ... (else result)), or (cond ...)",
    "throw": "write (raise value) or (error message)",
    "except rescue": "write (try body ... (catch (e) handler ...))",
    "assert": '(if (not test) (error "the fault")) raises an error',
    "import require load use include": "a program is one text; the host binds its other inputs",
    "str concat": '(string-append text ...) joins texts, (format "{}" value) makes one of any value',
    "len count size": "write (length list)",
    "hash-map make-hash hash object": 'write (dict "key" value ...) or {"key" value ...}',
    "array vector tuple": "write (list value ...)",
    "input read-line": "the host binds the inputs of a program: agentflow run FILE -b name=value",
}
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {word: hint for words, hint in _WORDS.items() for word in words.split()}
)
"""Suggestions for words of other languages."""


def name_hint(name: str, names: Iterable[str]) -> str | None:
    """The likely meaning of an unbound name: a word of another language, or a misspelt one of ``known``."""
    return ELSEWHERE.get(name) or did_you_mean(name, names)


SHORTEST_MISSPELLING = 4
"""Minimum length of a name to suspect; shorter ones resemble too many others."""


@frozen
class CertainFailure:
    """Code that will certainly fail. ``caught``: the program may continue nevertheless: a ``try`` or a ``race`` is around
    it, or the host may bind the name."""

    error: SexpEvaluationError
    caught: bool


@slotted
class Suspects:
    """The nodes to check in a program or a part of one, each with whether the program may continue if it fails."""

    names: list[tuple[Node, str, bool, bool]] = field(default_factory=list[tuple[Node, str, bool, bool]])
    """Free names, and whether they are operators."""
    primitives: list[tuple[ir.PrimCall, bool]] = field(default_factory=list[tuple[ir.PrimCall, bool]])
    """Calls of primitives with a wrong number of arguments, or with arguments of a certain wrong type."""
    operations: list[tuple[ir.RuntimeCall, bool]] = field(default_factory=list[tuple[ir.RuntimeCall, bool]])
    effects: list[tuple[ir.EffectCall, bool]] = field(default_factory=list[tuple[ir.EffectCall, bool]])
    calls: list[tuple[ir.Call, bool]] = field(default_factory=list[tuple[ir.Call, bool]])
    assigned: list[tuple[ir.SetGlobal, bool]] = field(default_factory=list[tuple[ir.SetGlobal, bool]])


def suspects(tree: IR) -> Suspects:
    """Visit all code that may run; of an operand with two readings only the certain one."""
    result = Suspects()
    pending: list[tuple[Any, bool]] = [(tree, False)]
    while pending:
        node, caught = pending.pop()
        if isinstance(node, ir.Call):
            result.calls.append((node, caught))
            if isinstance(node.operator, ir.Unknown):
                result.names.append((node.operator.at, node.operator.name, caught, True))
            else:
                pending.append((node.operator, caught))
            pending.extend((each.value, caught) for each in node.pairs or ())
            pending.extend((each, caught) for each in node.args)
            continue
        if isinstance(node, ir.PrimCall):
            word = node.primitive.takes
            may_not_fit = word is not None and not all(type(each) in _UNCERTAIN for each in node.args)
            if may_not_fit or not node.primitive.accepts(len(node.args)):
                result.primitives.append((node, caught))
        elif isinstance(node, ir.EffectCall):
            result.effects.append((node, caught))
        elif isinstance(node, ir.Unknown):
            result.names.append((node.at, node.name, caught, False))
        elif isinstance(node, ir.SetGlobal):
            result.assigned.append((node, caught))
        elif isinstance(node, ir.Try):
            pending.append((node.body, caught or node.handler is not None))
            pending.extend((each, caught) for each in (node.handler, node.final) if each is not None)
            continue
        elif isinstance(node, ir.ThunkList):
            pending.extend((each, caught) for each in node.items)
            continue
        elif isinstance(node, ir.RuntimeCall):
            result.operations.append((node, caught))
            caught = caught or node.op in ("race", "race-on")
        pending.extend((each, caught) for each in children(node))
    return result


def certain_failures(analyzer: Analyzer, tree: IR, *, closed: bool) -> list[CertainFailure]:
    """All certain failures in an analysed program.

    ``closed``: only the currently known names will exist, so that an unbound name is a failure too.
    Otherwise an unbound name that resembles a visible one is a finding that does not count as a failure.
    """
    return failures_of_parts([(analyzer, suspects(tree))], names_in_sight([analyzer]), closed=closed)[0]


def failures_of_parts(
    parts: Sequence[tuple[Analyzer, Suspects]], in_sight: Iterable[str], *, closed: bool
) -> list[list[CertainFailure]]:
    """The same for each part of one program; the parts know each other's definitions.

    ``in_sight`` are the names of the program and the language, asked for when there is one to suggest.
    """
    assigned = {node.name for _, part in parts for node, _ in part.assigned}
    doubtful: set[str] = set()
    listed: list[list[CertainFailure]] = []
    for analyzer, part in parts:
        checks = _Checks(analyzer, in_sight, closed=closed)
        checks.judge(part, assigned)
        checks.suspicious_names(doubtful)
        listed.append([*checks.findings, *[CertainFailure(each, True) for each in analyzer.doubts]])
    return listed


def names_in_sight(analyzers: Iterable[Analyzer]) -> Iterable[str]:
    """The names of a program and of the language, gathered at their first use."""
    return _InSight(analyzers)


class _InSight:
    def __init__(self, analyzers: Iterable[Analyzer]) -> None:
        self._analyzers = analyzers
        self._names: set[str] | None = None

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            self._names = {*PRIMITIVES}
            for a in self._analyzers:
                self._names.update(
                    a.forms, a.globals_defined, a.own, (var.name for var in a.vars if var.name[0] != " ")
                )
                self._names.update(a.port.known_names() if a.port is not None else ())
        return iter(self._names)


class _Checks:
    def __init__(self, analyzer: Analyzer, in_sight: Iterable[str], *, closed: bool) -> None:
        self.a = analyzer
        self.in_sight = in_sight
        self.closed = closed
        self.findings: list[CertainFailure] = []
        self.reported: set[tuple[str, int]] = set()
        self.doubtful: dict[str, Node] = {}

    def judge(self, part: Suspects, assigned: set[str]) -> None:
        """Collect certain failures; ``assigned`` are the variables that the whole program changes."""
        for node, name, caught, operator in part.names:
            self.unbound(node, name, caught, operator=operator)
        for primitive, caught in part.primitives:
            self.primitive(primitive, assigned, caught)
        for operation, caught in part.operations:
            self.operation(operation, assigned, caught)
        for effect, caught in part.effects:
            self.effect(effect, caught)
        for write, caught in part.assigned:
            if write.name not in self.a.globals_defined:
                self.unbound(write.at, write.name, caught)
        for call, caught in part.calls:
            self.procedure(call, assigned, caught)

    def report(self, node: Node, caught: bool, code: str, message: str, hint: str | None = None) -> None:
        """Keep a finding; one of each kind at one span."""
        if (code, node.start) not in self.reported:
            self.reported.add((code, node.start))
            self.findings.append(CertainFailure(self.a.error(node, code, message, hint), caught))

    # -- names ----------------------------------------------------------------------------------------------------

    def unbound(self, node: Node, name: str, caught: bool, *, operator: bool = False) -> None:
        if name == LOOP_CONFIG or name in self.a.own or name in self.a.globals_defined:
            return
        info = self.a.asked.get(name)
        if info is None or info.kind != "unknown" or (operator and self.a.allow is not None and name in self.a.allow):
            return
        if not self.closed and operator and name in ELSEWHERE:
            self.report(node, True, "name/suspicious", f"nothing here binds '{name}'", ELSEWHERE[name])
            return
        if not self.closed:
            first = self.doubtful.get(name)
            self.doubtful[name] = node if first is None or node.start < first.start else first
            return
        hint = name_hint(name, self.in_sight)
        if operator:
            self.report(node, caught, "name/unknown-operator", f"'{name}' is nothing that can be called here", hint)
        else:
            self.report(node, caught, "name/unbound", f"'{name}' is not bound", hint or "bind it first, with define")

    def suspicious_names(self, seen: set[str]) -> None:
        """Names the host may bind that resemble visible names, each at its first occurrence; ``seen`` occurred before."""
        for name, node in self.doubtful.items():
            if name in seen:
                continue
            seen.add(name)
            if len(name) < SHORTEST_MISSPELLING:
                continue
            names = {each for each in self.in_sight if each.rstrip("s") != name.rstrip("s") or each == name}
            near = did_you_mean(name, names) if name not in names else None
            if near is not None:
                self.report(node, True, "name/suspicious", f"nothing here binds '{name}'", near)

    # -- numbers of arguments -------------------------------------------------------------------------------------

    def primitive(self, node: ir.PrimCall, assigned: set[str], caught: bool) -> None:
        primitive = node.primitive
        if primitive.accepts(len(node.args)):
            word = primitive.takes or "."
            self.argument(node.at, primitive.name, word, node.args, primitive.usage, assigned, caught)
            return
        wanted = describe_arity(primitive.arity)
        message = f"{primitive.name} takes {wanted}, and is given {len(node.args)}"
        self.report(node.at, caught, "arity/primitive", message, f"write {primitive.usage}")

    def operation(self, node: ir.RuntimeCall, assigned: set[str], caught: bool) -> None:
        """A form of the runtime, with the code it runs; a number must not stand in place of a call there."""
        name = node.op.removesuffix("-on")
        form = self.a.forms.get(name)
        if form is None or form.takes is None:
            return
        usage = form.usage
        first, *rest = node.args
        is_called = form.runs and isinstance(first, ir.Call | ir.EffectCall | Lambda)
        run = rest[0] if is_called and rest else None
        if isinstance(run, ir.Thunk) and self.type_of(run.body, assigned) in (int, float):
            message = f"{name} runs its second operand, and that is a number here"
            self.report(node.at, caught, "type/argument", message, f"the other way round: {usage}")
            return
        self.argument(node.at, name, form.takes, node.args, usage, assigned, caught)

    def argument(
        self, at: Node, name: str, word: str, args: Sequence[IR], usage: str, assigned: set[str], caught: bool
    ) -> None:
        """An argument of a type that its parameter does not take."""
        wrong = misfit(word, [self.type_of(each, assigned) for each in args])
        if wrong is None:
            return
        shown = f"{_WHAT[wrong.letter]} as argument {wrong.index + 1}"
        message = f"{name} wants {shown}, and is given {_KINDS.get(wrong.kind, 'a list')}"
        hint = f"the other way round: {usage}" if wrong.swapped else f"write {usage}"
        self.report(args[wrong.index].at, caught, "type/argument", message, hint)

    def type_of(self, node: IR, assigned: set[str]) -> type[Any] | None:
        """The exact type of a literal, or of a procedure with a visible definition; None if unsure."""
        if isinstance(node, ir.Const | ir.Quote):
            return cast("type[Any]", type(node.value))
        if isinstance(node, ir.MakeDict):
            return dict
        if isinstance(node, ir.PrimCall):
            return list if node.primitive.name == "list" else None
        if isinstance(node, ir.Local | ir.Global | Lambda):
            return None if self.lambda_of(node, assigned) is None else Closure
        return None

    def procedure(self, node: ir.Call, assigned: set[str], caught: bool) -> None:
        callee = self.lambda_of(node.operator, assigned)
        if callee is None:
            return
        count, least = len(node.args) or len(node.pairs or ()), len(callee.params)
        if count == least or (callee.rest is not None and count > least):
            return
        wanted = f"at least {least}" if callee.rest is not None else str(least)
        names = [each.name for each in callee.params] + ([f". {callee.rest.name}"] if callee.rest is not None else [])
        self.report(
            node.at,
            caught,
            "arity/closure",
            f"{callee.name or 'this lambda'} takes {wanted} argument{'' if wanted == '1' else 's'}, and is given {count}",
            f"its parameters are ({' '.join(names)})",
        )

    def lambda_of(self, operator: IR, assigned: set[str]) -> Lambda | None:
        """The lambda that an operator certainly is; None if unsure."""
        if isinstance(operator, Lambda):
            return operator
        if isinstance(operator, ir.Local):
            return operator.var.known
        if not isinstance(operator, ir.Global) or operator.name in assigned:
            return None
        if self.a.globals_defined.get(operator.name) != 1 or self.a.describe(operator.name).kind == "variable":
            return None
        return self.a.global_lambdas.get(operator.name)

    # -- tasks and tools ------------------------------------------------------------------------------------------

    def info_of(self, name: str) -> NameInfo | None:
        """The parameters of a task or tool; None if unsure."""
        outer = self.a.asked.get(name)
        if name not in self.a.own:
            return outer
        own = self.a.own_infos.get(name, [])
        if len(own) != 1 or (outer is not None and outer.kind != "unknown" and outer != own[0]):
            return None
        return own[0]

    def effect(self, node: ir.EffectCall, caught: bool) -> None:
        if node.kind in ("context", "items"):
            self.context(node, caught)
            return
        info = self.info_of(node.name) if node.kind in ("task", "tool") else None
        if info is None or info.parameters is None:
            return
        pairs = {_pair_name(each): each for each in cast(Any, node.at).items[1:]}
        for name, value in zip(node.names, node.args, strict=True):
            at = pairs.get(name, node.at)
            parameter = info.parameter(name)
            if parameter is None:
                if not info.open:
                    takes = ", ".join(info.parameters) or "no parameters"
                    hint = did_you_mean(name, [*info.parameters, *info.reserved]) or f"it takes {takes}"
                    self.report(at, caught, "call/unknown-parameter", f"'{node.name}' has no parameter '{name}'", hint)
                continue
            constant = literal(value)
            if constant is None and not parameter.required:
                continue  # the default
            problem = mismatch(constant, parameter.schema, lenient=info.lenient)
            if problem is not None:
                message = f"'{name}' of '{node.name}': {problem.text}"
                if problem.key:
                    self.report(at, caught, "call/unknown-key", message, problem.hint)
                else:
                    self.report(at, caught, "call/argument", message, problem.hint)
        if "inputs" in node.names and "inputs" in info.reserved and "inputs" not in info.parameters:
            return
        missing = [name for name, each in info.parameters.items() if each.required and name not in node.names]
        if missing:
            shown = ", ".join(f"'{name}'" for name in missing)
            hint = f"write ({node.name} {' '.join(f'({name} value)' for name in info.parameters)})"
            message = f"the call of '{node.name}' misses {shown}"
            self.report(node.at, caught, "call/missing-parameter", message, hint)

    def context(self, node: ir.EffectCall, caught: bool) -> None:
        """The keys of a question to memory."""
        for pair in cast(Any, node.at).items[1:]:
            name = _pair_name(pair)
            if name not in CONTEXT_KEYS:
                hint = did_you_mean(name, CONTEXT_KEYS) or f"it knows {', '.join(sorted(CONTEXT_KEYS))}"
                self.report(pair, caught, "context/key", f"{node.name} knows no key '{name}'", hint)


_WHAT = {
    **dict.fromkeys("nNx", "a number"),
    **dict.fromkeys("iI", "an integer"),
    **dict.fromkeys("sS", "a string"),
    "l": "a list",
    "d": "a dict",
    "z": "a list, string or dict",
    "o": "a procedure",
    "j": "data",
    "k": "a key",
    "f": "a field name",
    "y": "a symbol",
    "r": "the result of a task or tool",
}
_KINDS: dict[type[Any], str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    Symbol: "a symbol",
    dict: "a dict",
    Closure: "a procedure",
    type(None): "none",
}
_UNCERTAIN = frozenset((ir.Unknown, ir.Call, ir.EffectCall))
"""Nodes with values that may have any type."""


def _pair_name(node: Any) -> str:
    head = node.items[0]
    return str(getattr(head, "name", getattr(head, "value", "")))


def children(node: Any) -> list[Any]:
    """The parts of a node that contain code."""
    kind = cast("type[Any]", type(node))
    parts: list[Any] = []
    for name in _fields(kind):
        value = getattr(node, name)
        for each in cast("list[Any]", value) if isinstance(value, list | tuple) else (value,):
            if isinstance(each, tuple):
                parts.extend(part for part in cast("tuple[Any, ...]", each) if type(part) in _CODE)
            elif type(each) in _CODE:
                parts.append(each)
    return parts


_CODE = frozenset(
    kind
    for kind in cast("Iterable[type[Any]]", vars(ir).values())
    if getattr(kind, "__module__", None) == ir.__name__ and hasattr(kind, "__dataclass_fields__")
)
"""The kinds of node of a program."""


_NO_CODE = frozenset(
    {"Node", "str", "str | None", "bool", "list[str]", "tuple[int, int]"}
    | {"Var", "Var | None", "list[Var]", "Function", "Primitive", "Operation"}
)
"""The types of fields without code."""


@cache
def _fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold code."""
    return tuple(name for name, each in kind.__dataclass_fields__.items() if each.type not in _NO_CODE)
