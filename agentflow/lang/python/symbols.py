"""Every binding and reference of a Python text, for editors: filled from its scopes and the meanings of its names."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.known_names import Names as NamesPort
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.core.data.walk import Work
from agentflow.lang.python.builtins import BUILTINS, CONSTANTS
from agentflow.lang.python.compiling import doubts_of, failures_of, lowering_of
from agentflow.lang.python.failure import CLASSES
from agentflow.lang.python.forms import FORMS
from agentflow.lang.python.functions import DECORATORS, known_function
from agentflow.lang.python.lowering import Describe, Lowering, TooManyMistakes
from agentflow.lang.python.methods import ALL_METHODS
from agentflow.lang.python.names import (
    COMPREHENSIONS,
    Comprehension,
    Function,
    LocalVariable,
    PythonScope,
    all_parameters,
)
from agentflow.lang.python.reader import children
from agentflow.lang.python.statements import IMPORTS
from agentflow.lang.symbols import Binding, BindingKind, Extent, Kind, Occurrence, Role, TextSymbols
from agentflow.lib.text.slots import SLOT

_WORD = re.compile(r"[^\W\d]\w*")
_SPACE = re.compile(r"\s*")
_LISTED = frozenset(("tools", "allow"))
"""Keywords with texts that name tasks and tools."""
_OWN_WORDS = frozenset((*DECORATORS, "isinstance"))


@dataclass(slots=True)
class _Definition:
    """An assignment of a name: its position, the whole definition, and the kind of binding."""

    start: int
    end: int
    form: Extent
    kind: BindingKind = "variable"
    parameters: tuple[str, ...] | None = None
    owner: str | None = None
    info: NameInfo | None = None


@dataclass(slots=True)
class _Use:
    """A reference to a name of the text."""

    name: str
    start: int
    end: int
    role: Role


@dataclass(slots=True)
class _Thing:
    """The meaning of a name: its assignments and its uses."""

    extent: Extent | None
    definitions: list[_Definition] = field(default_factory=list[_Definition])
    uses: list[_Use] = field(default_factory=list[_Use])


class NamesOfText:
    """One walk over a compiled text; ``names`` are the results."""

    def __init__(self, g: Lowering) -> None:
        self.g = g
        self.text = g.source.text
        self.names = TextSymbols()
        self._things: dict[LocalVariable | str, _Thing] = {}
        self._owners: dict[ast.AST, str] = {}
        self._classes: dict[str, list[str]] = {}
        self._members: list[tuple[str, int]] = []
        self._pending: list[tuple[ast.AST, PythonScope]] = [(g.tree, g.scopes.module)]

    def found(self) -> TextSymbols:
        """Walk, and return the names."""
        while self._pending:
            node, scope = self._pending.pop()
            self._visit(node, scope)
        for key, thing in self._things.items():
            self._settle(key, thing)
        for name, start in self._members:
            self._member(name, start)
        self.names.bindings.sort(key=lambda each: each.start)
        return self.names

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _visit(self, node: ast.AST, scope: PythonScope) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._function(node, scope)
        elif isinstance(node, COMPREHENSIONS):
            self._comprehension(node, scope)
        elif isinstance(node, ast.ClassDef):
            self._record(node, scope)
        elif isinstance(node, ast.Name):
            self._name(node, scope, "read")
        elif isinstance(node, ast.Call):
            self._call(node, scope)
        elif isinstance(node, ast.Attribute):
            if not self._dotted(node, scope, "read"):
                self._members.append((node.attr, self._extent(node)[1] - len(node.attr)))
                self._later(scope, node.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if isinstance(node.slice.value, str):
                self._members.append((node.slice.value, -1))
            self._later(scope, node.value)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            for each in _WORD.finditer(self.text, *self._extent(node)):
                if each[0] in node.names:
                    self._refer(each[0], each.start(), scope, "mention")
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            self._later(scope, *children(node))
            last = node.type if node.type is not None else node
            at = re.compile(rf"\bas\s+({re.escape(node.name)})\b").search(self.text, self._extent(last)[0])
            if at is not None:
                self._define(node.name, scope, _Definition(*at.span(1), self._extent(node)))
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                self._refer(each.name, self._extent(each)[0], scope, "mention")
        else:
            if isinstance(node, ast.keyword) and node.arg in _LISTED:
                self._listed(node.value, scope)
            self._later(scope, *children(node))

    def _later(self, scope: PythonScope, *nodes: ast.AST | None) -> None:
        self._pending.extend((each, scope) for each in nodes if each is not None)

    def _function(self, node: Function, scope: PythonScope) -> None:
        inner = self.g.scopes.scopes[node]
        extent = self._extent(node)
        args = node.args
        self._later(scope, *args.defaults, *args.kw_defaults)
        owner = None
        if not isinstance(node, ast.Lambda):
            self._later(scope, *node.decorator_list, node.returns)
            owner = self._owner(node, scope)
            is_task = scope.parent is None and node.name in self.g.own_tasks
            at = self._after("def", node.name, extent[0])
            if at is not None:
                names = tuple(each.arg for each in all_parameters(args))
                kind: BindingKind = "task" if is_task else "procedure"
                info = self.g.own_infos.get(node.name) if is_task else None
                self._define(node.name, scope, _Definition(*at, extent, kind, names, info=info))
            if is_task and node.body:
                self._slots(node.body[0], inner)
            self._later(inner, *node.body)
        else:
            self._later(inner, node.body)
        for each in all_parameters(args):
            start = self._extent(each)[0]
            definition = _Definition(start, start + len(each.arg), extent, "parameter", owner=owner)
            self._define(each.arg, inner, definition)
            self._later(scope, each.annotation)

    def _comprehension(self, node: Comprehension, scope: PythonScope) -> None:
        inner = self.g.scopes.scopes[node]
        first, *others = node.generators
        self._later(scope, first.iter)
        self._later(inner, first.target, *first.ifs)
        for each in others:
            self._later(inner, each.target, each.iter, *each.ifs)
        self._later(inner, *([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]))

    def _record(self, node: ast.ClassDef, scope: PythonScope) -> None:
        extent = self._extent(node)
        fields: list[str] = []
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                name = each.target.id
                fields.append(name)
                start = self._extent(each.target)[0]
                self._classes.setdefault(name, []).append(node.name)
                binding = Binding(name, "field", start, start + len(name), self._extent(each), extent, owner=node.name)
                self.names.bindings.append(binding)
                self.names.add(Occurrence(name, start, start + len(name), "binding", "local", binding))
                self._later(scope, each.annotation, each.value)
        at = self._after("class", node.name, extent[0])
        if at is not None:
            self._define(node.name, scope, _Definition(*at, extent, "class", tuple(fields)))
        self._later(scope, *node.decorator_list, *node.bases)

    def _call(self, node: ast.Call, scope: PythonScope) -> None:
        function = node.func
        owner: str | None = None
        if isinstance(function, ast.Name):
            self._name(function, scope, "call")
            owner = self._called(function.id, scope)
        elif isinstance(function, ast.Attribute) and self._dotted(function, scope, "call"):
            owner = ast.unparse(function)
        else:
            if isinstance(function, ast.Attribute) and function.attr in ALL_METHODS:
                end = self._extent(function)[1]
                if self._stands(function.attr, end - len(function.attr)):
                    method = Occurrence(function.attr, end - len(function.attr), end, "call", "method")
                    self.names.add(method)
                self._later(scope, function.value)
            else:
                self._later(scope, function)
        for each in node.keywords:
            if each.arg is not None:
                start = self._extent(each)[0]
                if owner is not None and self._stands(each.arg, start):
                    end = start + len(each.arg)
                    self.names.add(Occurrence(each.arg, start, end, "argument", "argument", owner=owner))
                elif owner is None:
                    self.names.hidden.add(each.arg)
                if each.arg in _LISTED:
                    self._listed(each.value, scope)
            self._later(scope, each.value)
        self._later(scope, *node.args)

    def _called(self, name: str, scope: PythonScope) -> str | None:
        """The owner of the arguments of a call by this name."""
        var = scope.find(name)
        callee = known_function(self.g, name, var)
        if callee is not None:
            return self._owners.get(callee) or self._owner(callee, scope)
        if var is not None or (name in self.g.scopes.defined and name not in self.g.own_tasks):
            return None
        return name

    def _dotted(self, node: ast.Attribute, scope: PythonScope, role: Role) -> bool:
        """Whether ``a.b`` is one name: of a tool, or of a function of a module such as ``json`` or ``math``. Then it is noted."""
        base = node.value
        if not isinstance(base, ast.Name) or scope.find(base.id) is not None or base.id in self.g.scopes.defined:
            return False
        dotted = f"{base.id}.{node.attr}"
        kind: Kind | None = None
        if self.g.kind(f"{base.id}:{node.attr}") in ("task", "tool"):
            kind = "task" if self.g.kind(f"{base.id}:{node.attr}") == "task" else "tool"
        elif dotted in BUILTINS or dotted in CONSTANTS:
            kind = "primitive"
        elif dotted in FORMS:
            kind = "form"
        if kind is None:
            return False
        start = self._extent(node)[0]
        if self._stands(dotted, start):
            self.names.add(Occurrence(dotted, start, start + len(dotted), role, kind))
        return True

    def _name(self, node: ast.Name, scope: PythonScope, role: Role) -> None:
        start = self._extent(node)[0]
        if not isinstance(node.ctx, ast.Load):
            self._define(node.id, scope, _Definition(start, start + len(node.id), (start, start + len(node.id))))
            return
        self._refer(node.id, start, scope, role)

    def _listed(self, node: ast.expr, scope: PythonScope) -> None:
        """Names of tasks and tools written as texts."""
        for each in node.elts if isinstance(node, ast.List | ast.Tuple) else ():
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                self._refer(each.value, self._extent(each)[0] + 1, scope, "mention")

    def _slots(self, prompt: ast.stmt, scope: PythonScope) -> None:
        """The parameters and tasks that the slots of a prompt name."""
        start, end = self._extent(prompt)
        for slot in SLOT.finditer(self.text, start, end):
            for word in _WORD.finditer(self.text, *slot.span(1)):
                if word[0] in scope.vars:
                    self._refer(word[0], word.start(), scope, "read")
                elif self.text[word.end() : word.end() + 1] == "(":
                    self._refer(word[0], word.start(), self.g.scopes.module, "mention")

    def _member(self, name: str, start: int) -> None:
        """The name after a dot is the field of the one class that has it; ambiguous with several classes, and for keys of
        dicts."""
        owners = self._classes.get(name, ())
        if len(owners) == 1 and start >= 0 and self._stands(name, start):
            self.names.add(Occurrence(name, start, start + len(name), "argument", "argument", owner=owners[0]))
        elif owners:
            self.names.hidden.add(name)

    # -- the meaning of names -----------------------------------------------------------------------------------------

    def _owner(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: PythonScope) -> str:
        """The owner of the parameters of a function: its name, after those of the functions around it."""
        outer = scope.node
        around = self._owners.get(outer) if scope.parent is not None else None
        owner = self._owners[node] = f"{around}.{node.name}" if around else node.name
        return owner

    def _refer(self, name: str, start: int, scope: PythonScope, role: Role) -> None:
        var = scope.find(name)
        if not self._stands(name, start):
            self.names.hidden.add(name)
            return
        if var is not None or name in self.g.scopes.defined or name in self.g.records:
            self._thing(name, var).uses.append(_Use(name, start, start + len(name), role))
            return
        self.names.add(Occurrence(name, start, start + len(name), role, self._meaning(name)))

    def _meaning(self, name: str) -> Kind:
        kind = self.g.kind(self.g.callable_name(name))
        if kind in ("task", "tool"):
            return "task" if kind == "task" else "tool"
        if kind == "variable":
            return "host"
        if name in FORMS or name in _OWN_WORDS:
            return "form"
        return "primitive" if name in BUILTINS or name in CLASSES else "unknown"

    def _define(self, name: str, scope: PythonScope, definition: _Definition) -> None:
        if not self._stands(name, definition.start):
            self.names.hidden.add(name)
            return
        self._thing(name, scope.find(name)).definitions.append(definition)

    def _thing(self, name: str, var: LocalVariable | None) -> _Thing:
        key: LocalVariable | str = name if var is None else var
        if key not in self._things:
            self._things[key] = _Thing(None if var is None else self._reach(var.scope))
        return self._things[key]

    def _settle(self, key: LocalVariable | str, thing: _Thing) -> None:
        """Bind a thing at its first assignment; the other assignments write to it."""
        name = key if isinstance(key, str) else key.name
        binding: Binding | None = None
        if thing.definitions:
            thing.definitions.sort(key=lambda each: each.start)
            first = next((each for each in thing.definitions if each.kind != "variable"), thing.definitions[0])
            binding = Binding(
                name,
                first.kind,
                first.start,
                first.end,
                first.form,
                thing.extent,
                first.parameters,
                None,
                first.info,
                first.owner,
            )
            self.names.bindings.append(binding)
        local = binding if thing.extent is not None else None
        kind: Kind = "global" if thing.extent is None else "local"
        if thing.extent is None and binding is not None and binding.kind == "task":
            kind = "task"
        for each in thing.definitions:
            role: Role = "binding" if binding is not None and each.start == binding.start else "write"
            self.names.add(Occurrence(name, each.start, each.end, role, kind, local))
        for use in thing.uses:
            self.names.add(Occurrence(name, use.start, use.end, use.role, kind, local))

    # -- places -------------------------------------------------------------------------------------------------------

    def _reach(self, scope: PythonScope) -> Extent:
        """The range of a scope's variables: after a function's last statement too, up to the next one."""
        start, end = self._extent(scope.node)
        if isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef):
            end = _SPACE.match(self.text, end).end() + 1  # type: ignore[union-attr]
        return start, end

    def _extent(self, node: ast.AST) -> Extent:
        span = self.g.span_at(node)
        return span.start, span.end

    def _after(self, keyword: str, name: str, start: int) -> Extent | None:
        at = re.compile(rf"(?:async\s+)?{keyword}\s+({re.escape(name)})\b").match(self.text, start)
        return None if at is None else at.span(1)

    def _stands(self, name: str, start: int) -> bool:
        """Whether the text has a name here. Python reports wrong positions inside f-strings of several lines."""
        return self.text.startswith(name, start)


def names_of(g: Lowering) -> TextSymbols:
    """The names of a compiled text."""
    return NamesOfText(g).found()


def is_workflow_text(text: str) -> bool:
    """Whether a file of Python is a workflow text and not a module: its first line says so, or an import of
    ``agentflow.workflow``.

    So does ``@workflow`` above a function, unless the file imports modules that no workflow text may.
    """
    if _IMPORTED.search(text) is not None or text.startswith(_HEADER):
        return True
    return _DECORATED.search(text) is not None and IMPORTS.issuperset(each[1] for each in _MODULE.finditer(text))


_HEADER = "### agentflow workflow "
_IMPORTED = re.compile(r"^from agentflow\.workflow import\b|^import agentflow\.workflow\b", re.MULTILINE)
_DECORATED = re.compile(r"^@workflow\b", re.MULTILINE)
_MODULE = re.compile(r"^[ \t]*(?:import|from)[ \t]+([\w.]+)", re.MULTILINE)


@frozen
class NamesFound:
    """The mistakes of a text, its suspicious parts, its names (None: it cannot be read), and the parameters of its tasks."""

    errors: list[AgentflowError]
    doubts: list[AgentflowError]
    names: TextSymbols | None
    tasks: dict[str, list[NameInfo]]


def look_over(
    source: Source, describe: Describe, limits: Limits, port: NamesPort | None, *, closed: bool
) -> Work[NamesFound]:
    """The mistakes and names of a text, as work that can be interrupted between two of its statements."""
    try:
        g = lowering_of(source, describe, limits, None, port, closed=closed)
        g.seeks_failures = True
        yield 1
        try:
            for each in g.tree.body:
                g.suite([each])
                yield 1
        except TooManyMistakes:
            pass  # the rest would only add to them; its names are found all the same
    except AgentflowError as error:
        return NamesFound([error], [], None, {})
    names = names_of(g)
    yield 1
    tasks = {name: [info] for name, info in g.own_infos.items()}
    return NamesFound([*g.errors, *failures_of(g)], doubts_of(g), names, tasks)
