"""Forms for literal data and templates."""

from __future__ import annotations

from agentflow.core.data.values import Symbol
from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Atom, DictForm, Form, Name, Node, datum, head_name


def quoted(node: Node) -> IR:
    """The value that ``node`` denotes, a new one at each evaluation if it is mutable."""
    if type(node) is Atom:
        return ir.Const(node, node.value)
    return ir.Const(node, Symbol(node.name)) if type(node) is Name else ir.Quote(node, datum(node))


@form("quote", usage="(quote datum)  'datum", scoping=True)
def quote(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Returns the datum, not evaluated. Lists and dicts are new at each evaluation."""
    return quoted(operands(a, node, 1, 1, "(quote datum) or 'datum")[0])


@form("quasiquote", usage="(quasiquote template)  `template", scoping=True)
def quasiquote(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Returns the template as data, each `,form` replaced by its value and each `,@form` by its value's elements."""
    template = operands(a, node, 1, 1, "(quasiquote template) or `template")[0]
    return _template(a, template, scope, 1)


def _template(a: Analyzer, node: Node, scope: Scope, level: int) -> IR:
    if type(node) is DictForm:
        keys = [key.name if type(key) is Name else datum(key) for key in node.items[::2]]
        return ir.MakeDict(node, keys, [_template(a, value, scope, level) for value in node.items[1::2]])
    if type(node) is not Form:
        return quoted(node)
    name = head_name(node)
    if name in ("unquote", "unquote-splicing", "quasiquote"):
        inner = operands(a, node, 1, 1, f"({name} form)")[0]
        if name == "quasiquote":
            level += 1
        elif level == 1:
            if name == "unquote-splicing":
                raise a.error(node, "form/splice", "',@' goes inside a list: there is nothing to splice into here")
            return a.expr(inner, scope)
        else:
            level -= 1
        return _list(node, [ir.Const(node, Symbol(name)), _template(a, inner, scope, level)])
    parts: list[IR] = []
    run: list[IR] = []
    for item in node.items:
        if level == 1 and type(item) is Form and head_name(item) == "unquote-splicing":
            spliced = operands(a, item, 1, 1, "(unquote-splicing form)")[0]
            if run:
                parts.append(_list(node, run))
                run = []
            parts.append(a.expr(spliced, scope))
        else:
            run.append(_template(a, item, scope, level))
    if not parts:
        return _list(node, run)
    if run:
        parts.append(_list(node, run))
    return ir.PrimCall(node, PRIMITIVES["append"], parts)


def _list(node: Node, items: list[IR]) -> IR:
    return ir.PrimCall(node, PRIMITIVES["list"], items) if items else ir.Quote(node, [])


def _stray(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    name = head_name(node)
    raise a.error(
        node, "form/unquote", f"'{name}' means something inside a quasiquote only", "begin the template with `"
    )


@form("unquote", usage="(unquote form)  ,form", scoping=True)
def unquote(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Inside a quasiquote template: the value of the form."""
    return _stray(a, node, scope, tail)


@form("unquote-splicing", usage="(unquote-splicing form)  ,@form", scoping=True)
def unquote_splicing(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Inside a quasiquote template: the elements of the value of the form."""
    return _stray(a, node, scope, tail)
