"""The analysis that fills a symbol table. Compiling uses the plain one, which keeps nothing of the kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.lang import ir
from agentflow.lang.analyzer import EFFECT_NAMES, LOOP_CONFIG, Analyzer, Tail
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.ir import IR, Var
from agentflow.lang.naming import Scope
from agentflow.lang.symbols import Binding, Kind, Occurrence, Role, TextSymbols
from agentflow.lang.syntax import Atom, DictForm, Form, Name, Node, head_name
from agentflow.lib.text.slots import SLOT

_CALL = re.compile(r"([^\s.(){},]+)\s*\(")
_WORD = re.compile(r"[^\s.(){},\"']+")
_TEMPLATES = ("quote", "quasiquote")


class SymbolAnalyzer(Analyzer):
    """An analysis that keeps every binding and reference in ``names``."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.names = TextSymbols()
        self._within: Node | None = None
        self._bindings: dict[Var, Binding] = {}

    # -- references -------------------------------------------------------------------------------------------------

    def _expr(self, node: Node, scope: Scope, tail: Tail) -> IR:
        if type(node) is Name:
            self._refer(node, "read", scope)
        if type(node) is not Form or not node.items:
            return super()._expr(node, scope, tail)
        around, self._within = self._within, node
        try:
            head = node.items[0]
            if type(head) is Name:
                self._refer(head, "call", scope)
                if head.name in _TEMPLATES and scope.find(head.name) is None:
                    self._data(node.items[1:])
            return super()._expr(node, scope, tail)
        finally:
            self._within = around

    def pair(self, node: Node, scope: Scope) -> ir.Pair:
        at = node
        while isinstance(at, Form) and self.pair_shaped(at, scope):
            head, operand = at.items
            assert isinstance(head, Name)
            if self._meaning(head, "call", scope) == "unknown":
                self._add(head, "argument", "argument")
            else:
                self._refer(head, "call", scope)
            at = operand
        return super().pair(node, scope)

    def effect(self, node: Form, kind: str, name: str, scope: Scope) -> ir.EffectCall:
        for each in node.items[1:]:
            head = each.items[0] if type(each) is Form and len(each.items) == 2 else None
            if type(head) is Name:
                self._add(head, "argument", "argument", owner=name)
        return super().effect(node, kind, name, scope)

    def written(self, name: Name, scope: Scope) -> None:
        self._refer(name, "write", scope)

    def mentioned(self, name: Node) -> None:
        if type(name) is Name:
            self._add(name, "mention", self._free(name.name))

    def expansion(self, macro: Any, node: Form, scope: Scope, tail: Tail) -> IR:
        self.opaque(node)
        return super().expansion(macro, node, scope, tail)

    def opaque(self, node: Node, name: Name | None = None) -> None:
        self.names.opaque.append((node.start, node.end))
        if name is not None:
            self._file_level(name, node, "macro", Binding(name.name, "macro", name.start, name.end, _extent(node)))

    def _data(self, nodes: Sequence[Node]) -> None:
        """Quoted names: those of a template that are evaluated are read later, which counts for more."""
        pending = list(nodes)
        while pending:
            at = pending.pop()
            if type(at) is Name:
                self._add(at, "data", "data")
            elif isinstance(at, Form | DictForm):
                pending.extend(at.items)

    def _refer(self, node: Name, role: Role, scope: Scope) -> None:
        var = scope.find(node.name)
        if var is None:
            self._add(node, role, self._meaning(node, role, scope))
            return
        self._add(node, role, "local", self._bindings.get(var))

    def _meaning(self, node: Name, role: Role, scope: Scope) -> Kind:
        name = node.name
        if scope.find(name) is not None:
            return "local"
        if role == "call" and name in self.forms:
            return "form"
        if role == "call" and name in self.macros:
            return "macro"
        return "context" if name == LOOP_CONFIG else self._free(name)

    def _free(self, name: str) -> Kind:
        kind = self.kind(name)
        if kind == "variable":
            return "global" if name in self.globals_defined else "host"
        if name in PRIMITIVES:
            return "primitive"
        return "context" if name in EFFECT_NAMES else kind

    # -- bindings -----------------------------------------------------------------------------------------------------

    def var(self, name: str, scope: Scope, at: Node | None = None, within: Node | None = None) -> Var:
        var = super().var(name, scope, at, within)
        around = within or self._within
        if at is not None and around is not None:
            binding = Binding(name, "variable", at.start, at.end, _extent(around), _extent(around))
            self._bind(binding, var)
        elif not name.startswith(" ") and around is not None:
            self._bindings[var] = Binding(name, "variable", -1, -1, _extent(around), _extent(around))
        return var

    def block(self, nodes: Sequence[Node], scope: Scope, tail: Tail, at: Node) -> IR:
        around, self._within = self._within, at
        try:
            return super().block(nodes, scope, tail, at)
        finally:
            self._within = around

    def lambda_(self, node: Node, params: Node, *rest: Any, **options: Any) -> ir.Lambda:
        around, self._within = self._within, node
        try:
            result = super().lambda_(node, params, *rest, **options)
        finally:
            self._within = around
        for var in [*result.params, *([result.rest] if result.rest is not None else [])]:
            if var in self._bindings:
                self._bindings[var].kind = "parameter"
        return result

    def defined(self, name: Name, node: Node, var: Var | None, value: IR) -> None:
        binding = Binding(name.name, "variable", name.start, name.end, _extent(node))
        if var is None:
            self._file_level(name, node, "global", binding)
        elif var in self._bindings:
            first = self._bindings[var]
            if first.start < 0 and self._stands(name):
                first.start, first.end, first.form = name.start, name.end, _extent(node)
                self.names.bindings.append(first)
            self._add(name, "binding", "local", first)
            binding = first
        if isinstance(value, ir.Lambda):
            _take(binding, value)

    def finish(self) -> None:
        super().finish()
        for var, binding in self._bindings.items():
            if var.value is not None and binding.kind == "variable":
                _take(binding, var.value)

    def defined_task(self, name: Name, node: Form, options: Mapping[str, Form]) -> None:
        own: dict[str, Binding] = {}
        for each in options["params"].items[1:] if "params" in options else ():
            parameter = each.items[0] if isinstance(each, Form) and each.items else each
            if type(parameter) is Name:
                extent = _extent(node)
                binding = Binding(
                    parameter.name, "parameter", parameter.start, parameter.end, extent, extent, owner=name.name
                )
                own[parameter.name] = binding
                self._bind(binding, None)
        task = Binding(name.name, "task", name.start, name.end, _extent(node), parameters=tuple(own))
        self._file_level(name, node, "task", task)
        for key in ("instructions", "system"):
            text = options[key].items[-1] if key in options else None
            if type(text) is Atom:
                self._slots(text, own)
        listed = options["tools"].items[1:] if "tools" in options else []
        for each in listed:
            for item in each.items[1:] if isinstance(each, Form) and head_name(each) == "quote" else [each]:
                self.mentioned(item)

    def _slots(self, text: Node, parameters: Mapping[str, Binding]) -> None:
        """The parameters and tasks that the slots of a text name, as the text of the program has them."""
        for slot in SLOT.finditer(self.source.text, text.start, text.end):
            called = _CALL.match(slot[1])
            if called is not None:
                self.mentioned(Name(called[1], slot.start(1), slot.start(1) + called.end(1)))
            for word in _WORD.finditer(slot[1], called.end() if called is not None else 0):
                start = slot.start(1) + word.start()
                if word[0] in parameters:
                    self._add(Name(word[0], start, start + len(word[0])), "read", "local", parameters[word[0]])
                if called is None:
                    break

    def _file_level(self, name: Name, node: Node, kind: Kind, binding: Binding) -> None:
        if self._stands(name):
            self.names.bindings.append(binding)
        self._add(name, "binding", kind)

    def _bind(self, binding: Binding, var: Var | None) -> None:
        name = Name(binding.name, binding.start, binding.end)
        if var is not None:
            self._bindings[var] = binding
        if self._stands(name):
            self.names.bindings.append(binding)
        self._add(name, "binding", "local", binding)

    def _stands(self, name: Name) -> bool:
        """Whether the text has a name, or an expansion put it there."""
        return self.source.text[name.start : name.end] == name.name

    def _add(
        self, name: Name, role: Role, kind: Kind, binding: Binding | None = None, *, owner: str | None = None
    ) -> None:
        if self._stands(name):
            self.names.add(Occurrence(name.name, name.start, name.end, role, kind, binding, owner))
        elif binding is None:
            self.names.hidden.add(name.name)


def _take(binding: Binding, value: ir.Lambda) -> None:
    """Note that a binding is a procedure, and what that takes."""
    binding.kind = "procedure"
    binding.parameters = tuple(each.name for each in value.params)
    binding.rest = value.rest.name if value.rest is not None else None


def _extent(node: Node) -> tuple[int, int]:
    return node.start, node.end
