"""Forms that treat programs as data: evaluation and macros."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.forms.form import form, operands
from agentflow.lang.forms.tasks import clauses
from agentflow.lang.ir import IR
from agentflow.lang.macros import Macro
from agentflow.lang.syntax import Form, Name

_EVAL = "(eval-program program (bindings dict) (allow name ...) (max-steps n))"
_MACRO = "(defmacro name (parameter ...) template)"


@form("eval-program", usage=_EVAL, body=1)
def eval_program(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Evaluates a program, given as a datum or as text, in a fresh environment with these bindings.

    It may call only the tasks and tools in allow, and none without it. max-steps bounds its steps.
    """
    parts = operands(a, node, 1, None, _EVAL)
    program = a.expr(parts[0], scope)
    allow, options, values = clauses(a, parts[1:], ("bindings", "max-steps"), scope, "eval-program", _EVAL)
    return ir.RuntimeCall(
        node, "eval-program", [ir.CurrentEnvironment(node), program, *values], [tuple(allow), tuple(options)]
    )


@form("defmacro", usage=_MACRO, scoping=True, body=2)
def defmacro(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Defines a macro for the rest of the program: calls are replaced, before anything runs, by the template's value.

    The parameters are bound to the operands as data. The template may compute, but not call tasks or tools.
    """
    parts = operands(a, node, 3, None, _MACRO)
    name, params = parts[0], parts[1]
    if type(name) is not Name:
        raise a.error(name, "macro/name", "the name of a macro is a symbol", f"write {_MACRO}")
    if scope.parent is not None:
        raise a.error(node, "macro/place", "macros are defined at top level", "move it out of the form around it")
    a.parameters(params)
    a.opaque(node, name)
    a.macros[name.name] = Macro.define(a, node, name, params, parts[2:])
    return ir.Quote(node, [])
