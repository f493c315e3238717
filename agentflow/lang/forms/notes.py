"""``remember`` and ``recall``: the tools of these names, with the text or question as a plain operand.

Called like tools, ``(remember (text t))``, they return the tool's result; models are taught this form.
"""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms.failure import clause
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Form, Node


@form("remember", usage="(remember text (key name))")
def remember(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Stores a text for later runs and returns the note's id; it replaces the text with the same key."""
    return _tool_call(a, node, scope, "remember", "text", "key")


@form("recall", usage="(recall question (limit n))")
def recall(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """The remembered texts relevant to a question, best first; the latest ones if the question is empty."""
    return _tool_call(a, node, scope, "recall", "query", "limit")


def _tool_call(a: Analyzer, node: Form, scope: Scope, tool: str, first: str, option: str) -> IR:
    usage = f"({tool} {first} ({option} value))"
    parts = operands(a, node, 1, 2, usage)
    a.granted(tool, node)
    if all(_is_argument(a, each, (first, option), scope) for each in parts):
        return a.effect(node, "tool", tool, scope)
    names, values = [first], [a.expr(parts[0], scope)]
    if len(parts) == 2:
        one = clause(a, parts[1:], option, tool)
        if one is None or len(one.items) != 2:
            raise a.error(parts[1], "form/clause", f"this is not a clause of '{tool}'", f"write {usage}")
        names.append(option)
        values.append(a.expr(one.items[1], scope))
    return ir.PrimCall(node, PRIMITIVES["value-of"], [ir.EffectCall(node, "tool", tool, names, values)])


def _is_argument(a: Analyzer, node: Node, names: tuple[str, ...], scope: Scope) -> bool:
    """Whether ``node`` is a named argument of the tool: a pair with a parameter as its head, which cannot be called."""
    name = a.pair_name(node, strings=False)
    return name in names and scope.find(name) is None and name not in PRIMITIVES and a.kind(name) == "unknown"
