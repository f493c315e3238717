"""Template functions: ``{{f(a, b="x")}}`` in a prompt, and FunctionCallNodes from Python.

A call evaluates its arguments in the caller's scope, binds them to the function's declared parameters in a new
environment and evaluates the body there, isolated from the caller. The value of a template with ``is_function`` is its
rendered body; the value of any other atomic template is the model's answer. Templates have no conditionals, so
recursion would never end: it is an error that names the cycle.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import TaskError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ALL_FILES, FILES, READ_FILES, file_grants, narrowed, permitted
from agentflow.core.data.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.context_rules import ContextSettings
from agentflow.tasks.template import at_once, resolve_inputs
from agentflow.tasks.template_environment import Environment
from agentflow.tasks.template_registry import CompiledTemplate

_LOOK_UP = frozenset({"get_context", "system:get_context"})


def settings_within_grants(
    compiled: CompiledTemplate, request: SubtaskRequest, settings: ContextSettings, call: CallContext
) -> ContextSettings:
    """The context settings of a task in ``call``: a fresh lookup needs a grant unless the host's template asks for it.

    A lookup enabled only by the subtype's default of an untrusted template is dropped; a requested one raises
    TaskError (``name/not-granted``).
    """
    if call.grants is None or settings.fresh_context != "enabled" or call.grants & _LOOK_UP:
        return settings
    asked = (request.context_management, compiled.template.context_management)
    if compiled.grants is None:
        by_host = compiled.context is not None and compiled.context.fresh_context == "enabled"
        if by_host or request.context_management is None:
            return settings
    elif not any(layer is not None and layer.fresh_context == "enabled" for layer in asked):
        return replace(settings, fresh_context="disabled")
    raise _not_granted(f"task '{compiled.name}' may not look files up for this program", "get_context")


def check_files(compiled: CompiledTemplate, paths: Sequence[str], roots: Sequence[Path], call: CallContext) -> None:
    """Raise TaskError (``name/not-granted``) for a file among ``paths``, all absolute, that the grants do not cover.

    ``system:read_files`` covers all, ``files:GLOB`` those with a matching path below one of ``roots`` (or the whole path,
    for an absolute pattern): ``*`` is anything within a name, ``**`` any number of directories.
    """
    granted = file_grants(call.grants)
    if ALL_FILES in granted:
        return
    globs = [PurePath(name.removeprefix(FILES)) for name in granted]
    for path in map(PurePath, paths):
        below = [path.relative_to(root) for root in roots if path.is_relative_to(root)]
        if not any([_matches(name.parts, glob.parts) for glob in globs for name in (*below, path)]):
            shown = str(below[0] if below else path)
            raise _not_granted(f"task '{compiled.name}' may not be given {shown!r} by this program", READ_FILES, shown)


def _matches(names: Sequence[str], glob: Sequence[str]) -> bool:
    """Whether the components of a path match those of a pattern; ``states`` are the positions in the pattern reached."""
    states = _past_stars({0}, glob)
    for name in names:
        states = _past_stars(
            {
                at if glob[at] == "**" else at + 1
                for at in states
                if at < len(glob) and (glob[at] == "**" or fnmatch.fnmatchcase(name, glob[at]))
            },
            glob,
        )
    return len(glob) in states


def _past_stars(states: set[int], glob: Sequence[str]) -> set[int]:
    for at in sorted(states):
        while at < len(glob) and glob[at] == "**":
            at += 1
            states.add(at)
    return states


def _not_granted(message: str, name: str, path: str | None = None) -> TaskError:
    names = f"'{name}'" if path is None else f"'{name}', or '{FILES}{path}'"
    return TaskError(
        message,
        reason="input_validation_failure",
        code="name/not-granted",
        hint=f"grant it {names}, by allow=[...]; a task's own model is granted by its tools",
        details={"cause": "not_granted", "name": name},
    )


MAX_CALL_DEPTH = 20
"""Maximum nesting of function bodies, and of tasks that hosts run at a ``call_depth``."""

BodyRunner: TypeAlias = "Callable[[CompiledTemplate, Mapping[str, Any], FunctionCalls], Awaitable[TaskResult]]"
"""``(template, values, calls)``: evaluates a template's body with the values of its parameters."""


@frozen
class FunctionCalls:
    """Evaluates function calls in one text: ``stack`` names the enclosing bodies, outermost first.

    ``find`` looks up a template, ``run`` evaluates a body, ``depth`` is the nesting depth of the caller, ``names`` lists
    the existing names for suggestions, ``fork`` gives them at a call of its own, for one of several slots
    evaluated at once. ``held`` are the grants of the call, ``grants`` the names that the text may call: the host's own
    texts may call all templates, a text of an untrusted program those of the program.
    """

    find: Callable[[str], CompiledTemplate | None]
    run: BodyRunner
    stack: tuple[str, ...] = ()
    depth: int = 0
    names: Callable[[], Sequence[str]] = tuple
    held: frozenset[str] | None = None
    grants: frozenset[str] | None = None
    fork: Callable[[], FunctionCalls] | None = None

    async def __call__(self, node: FunctionCallNode) -> str:
        """Evaluate a call with values as arguments; return its text. Raises the error of a failed call."""
        result = await self.apply(node.template_name, node.arguments, node.named_arguments)
        result.value()
        return result.content

    async def evaluate(self, node: FunctionCallNode, env: Environment) -> TaskResult:
        """Evaluate a call: nested nodes are evaluated; a text is a variable of ``env`` or else a literal."""
        places = [*node.arguments, *node.named_arguments.values()]
        calls = self.apart(sum([isinstance(each, FunctionCallNode) for each in places]))
        values = await at_once(
            [
                next(calls)._argument(each, env) if isinstance(each, FunctionCallNode) else self._argument(each, env)
                for each in places
            ]
        )
        count = len(node.arguments)
        named = dict(zip(node.named_arguments, values[count:], strict=True))
        return await self.apply(node.template_name, values[:count], named)

    def apart(self, count: int) -> Iterator[FunctionCalls]:
        """These calls for each of ``count`` places: several have a call of their own each, since they are evaluated at once."""
        fork = self.fork
        if count < 2 or fork is None:
            return iter([self] * count)
        return iter([replace(fork(), stack=self.stack, grants=self.grants) for _ in range(count)])

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
        check_depth(name, self.depth + len(self.stack))
        values = self._bind(compiled, arguments, named)
        return await self.run(compiled, values, self)

    def within(self, compiled: CompiledTemplate) -> FunctionCalls:
        """The evaluator for calls inside the body of ``compiled``."""
        grants = None if compiled.grants is None else narrowed(compiled.grants, self.held)
        return replace(self, stack=(*self.stack, compiled.name), grants=grants)

    @staticmethod
    def _bind(compiled: CompiledTemplate, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        params = list(compiled.template.params)
        if len(arguments) > len(params):
            raise _wrong_call(
                compiled, f"takes {len(params)} argument{'s' * (len(params) != 1)}, and got {len(arguments)}"
            )
        bound = dict(zip(params, arguments, strict=False))
        for key, value in named.items():
            if key not in compiled.template.params:
                raise _wrong_call(compiled, f"has no parameter '{key}'", did_you_mean(key, params))
            if key in bound:
                raise _wrong_call(compiled, f"got parameter '{key}' twice")
            bound[key] = value
        return resolve_inputs(compiled.name, compiled.template.params, bound)[0]


def check_depth(name: str, depth: int) -> None:
    """Refuse a too deeply nested call of the template ``name``. Raises TaskError (``tasks/function-depth``)."""
    if depth >= MAX_CALL_DEPTH:
        raise TaskError(
            f"calls of templates are nested deeper than {MAX_CALL_DEPTH}: '{name}' at depth {depth}",
            reason="execution_halted",
            code="tasks/function-depth",
            details={"depth": depth, "limit": MAX_CALL_DEPTH},
        )


def _wrong_call(compiled: CompiledTemplate, message: str, hint: str | None = None) -> TaskError:
    return TaskError(
        f"template function '{compiled.name}' {message}",
        reason="input_validation_failure",
        code="tasks/bad-call",
        hint=hint or f"call it as {compiled.name}({', '.join(compiled.template.params)})",
    )
