"""Template functions: ``{{f(a, b="x")}}`` in a prompt, and FunctionCallNodes from Python.

A call evaluates its arguments in the caller's scope, binds them to the function's declared parameters in a fresh
environment and evaluates the body there: the body sees nothing of its caller. A template with ``is_function`` is text:
its value is its rendered body. Any other atomic template is a task: its value is the model's answer. Templates have no
conditionals, so a function that comes back to itself would never end: that is an error naming the cycle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agentflow.core.errors import TaskError
from agentflow.core.names import narrowed, permitted
from agentflow.core.requests import FunctionCallNode
from agentflow.core.results import TaskResult
from agentflow.lib.suggest import did_you_mean
from agentflow.tasks.environment import Environment
from agentflow.tasks.inputs import resolve_inputs
from agentflow.tasks.registry import CompiledTemplate

MAX_CALL_DEPTH = 20
"""Deepest nesting of function bodies within each other."""

BodyRunner: TypeAlias = "Callable[[CompiledTemplate, Mapping[str, Any], FunctionCalls], Awaitable[TaskResult]]"
"""Evaluates a template's body with its parameters' values, called from where the FunctionCalls given stands."""


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """Function calls made at one place: ``stack`` names the bodies being evaluated around it, outermost first.

    ``find`` looks a template up, ``run`` evaluates a body, ``depth`` is how deep the caller was nested already, ``names``
    lists the known names for suggestions. ``held`` are the grants of the call, ``grants`` what the text around may call:
    the host's own texts may call all templates, those that an untrusted program defined what that program may.
    """

    find: Callable[[str], CompiledTemplate | None]
    run: BodyRunner
    stack: tuple[str, ...] = ()
    depth: int = 0
    names: Callable[[], Sequence[str]] = tuple
    held: frozenset[str] | None = None
    grants: frozenset[str] | None = None

    async def __call__(self, node: FunctionCallNode) -> str:
        """The text of a call whose arguments are values already. Raises the error of a failed one."""
        result = await self.apply(node.template_name, node.arguments, node.named_arguments)
        result.value()
        return result.content

    async def evaluate(self, node: FunctionCallNode, env: Environment) -> TaskResult:
        """Evaluate a call: nested nodes are run, texts are variables of ``env`` first and literals else."""
        arguments = [await self._argument(argument, env) for argument in node.arguments]
        named = {key: await self._argument(value, env) for key, value in node.named_arguments.items()}
        return await self.apply(node.template_name, arguments, named)

    async def _argument(self, argument: Any, env: Environment) -> Any:
        if isinstance(argument, FunctionCallNode):
            return (await self.evaluate(argument, env)).value()
        if isinstance(argument, str) and argument in env:
            return env.find(argument)
        return argument

    async def apply(self, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> TaskResult:
        """Call ``name`` with argument values. Raises TaskError for an unknown function, wrong arguments or a cycle."""
        compiled = self.find(name)
        if compiled is not None and not permitted(compiled, self.grants):
            raise TaskError(
                f"the template function '{name}' is not granted to the program that defined '{self.stack[-1]}'",
                reason="input_validation_failure",
                code="name/not-granted",
                hint="grant it by name, with allow",
                details={"cause": "not_granted", "name": name},
            )
        if compiled is None:
            raise TaskError(
                f"there is no template function '{name}'",
                reason="input_validation_failure",
                code="tasks/template-not-found",
                hint=did_you_mean(name, self.names()),
                details={"cause": "template_not_found", "name": name},
            )
        if compiled.name in self.stack:
            cycle = " -> ".join([*self.stack[self.stack.index(compiled.name) :], compiled.name])
            raise TaskError(
                f"template functions call each other in a cycle: {cycle}",
                reason="execution_halted",
                code="tasks/function-cycle",
                hint="templates have no conditionals, so a cycle never ends: break it",
                details={"cycle": cycle},
            )
        depth = self.depth + len(self.stack)
        if depth >= MAX_CALL_DEPTH:
            raise TaskError(
                f"template functions are nested deeper than {MAX_CALL_DEPTH}: '{name}' at depth {depth}",
                reason="execution_halted",
                code="tasks/function-depth",
                details={"depth": depth, "limit": MAX_CALL_DEPTH},
            )
        values = self._bind(compiled, arguments, named)
        return await self.run(compiled, values, self)

    def within(self, compiled: CompiledTemplate) -> FunctionCalls:
        """The calls made inside the body of ``compiled``."""
        grants = None if compiled.grants is None else narrowed(compiled.grants, self.held)
        return replace(self, stack=(*self.stack, compiled.name), grants=grants)

    @staticmethod
    def _bind(compiled: CompiledTemplate, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        params = list(compiled.template.params)
        if len(arguments) > len(params):
            raise _wrong_call(
                compiled, f"takes {len(params)} argument{'s' * (len(params) != 1)}, and got {len(arguments)}"
            )
        given = dict(zip(params, arguments, strict=False))
        for key, value in named.items():
            if key not in compiled.template.params:
                raise _wrong_call(compiled, f"has no parameter '{key}'", did_you_mean(key, params))
            if key in given:
                raise _wrong_call(compiled, f"got parameter '{key}' twice")
            given[key] = value
        return resolve_inputs(compiled.name, compiled.template.params, given)[0]


def _wrong_call(compiled: CompiledTemplate, message: str, hint: str | None = None) -> TaskError:
    return TaskError(
        f"template function '{compiled.name}' {message}",
        reason="input_validation_failure",
        code="tasks/bad-call",
        hint=hint or f"call it as {compiled.name}({', '.join(compiled.template.params)})",
    )
