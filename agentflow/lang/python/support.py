"""Functions that generated code calls for names, calls and closures."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.labels import Label, bare, blame, box, outer_sources
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.builtins.results import value_of
from agentflow.lang.calling import TAIL, Sliced, bounce
from agentflow.lang.closure import Closure, LambdaInfo
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment, unbound
from agentflow.lang.python.errors import article, kind_of
from agentflow.lang.python.rows import code
from agentflow.lang.python.texts import joined, text
from agentflow.lang.python.values import MISSING, elements
from agentflow.lang.trace import fit_result
from agentflow.lib.text.suggest import did_you_mean


@code("pk")
async def call(rt: Runtime, d: int, function: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    """Call any procedure value, of either surface; the last arguments are those by ``keywords``."""
    called = bare(function)
    if type(called) is not Closure and not getattr(type(called), "is_procedure", False) and not callable(called):
        raise _not_callable(function)
    if keywords:
        count = len(arguments) - len(keywords)
        named = dict(zip(keywords, arguments[count:], strict=True))
        arguments = placed(function, arguments[:count], named)
    result = await rt.pick(function, len(arguments), d)(rt, d + 1, *arguments)
    return await bounce(rt, d) if result is TAIL else result


def _not_callable(function: Any) -> SexpEvaluationError:
    error = SexpEvaluationError(
        f"{article(kind_of(bare(function)))} cannot be called", code="call/not-callable", hint="call a function"
    )
    blame(error, outer_sources(function))
    return error


def placed(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of a call in the order of the parameters. Raises ``arity/closure``."""
    if not isinstance(function, Closure):
        raise SexpEvaluationError("this function takes no keywords", code="arity/closure")
    info = function.info
    names = (*info.params, *info.optional)
    order = list(arguments)
    for name in names[len(arguments) :]:
        order.append(named.pop(name, MISSING))
    for name in named:
        again = name in names
        hint = did_you_mean(name, names) or f"its parameters are {', '.join(names) or '(none)'}"
        message = f"is given '{name}' twice" if again else f"has no parameter '{name}'"
        raise SexpEvaluationError(f"{info.name or 'this lambda'} {message}", code="arity/closure", hint=hint)
    while order and order[-1] is MISSING:
        order.pop()
    missing = [name for name, value in zip(info.params, order, strict=False) if value is MISSING]
    if missing:
        raise SexpEvaluationError(f"{info.name or 'this lambda'} misses {', '.join(missing)}", code="arity/closure")
    return tuple(order)


@code("k")
def filled(code: Code, info: LambdaInfo, by_position: int) -> Code:
    """``code``, with all arguments required, as a procedure that callers may call without those with defaults."""
    least, most = len(info.params), len(info.params) + len(info.optional)

    async def checked(rt: Runtime, d: int, *arguments: Any) -> Any:
        if len(arguments) > most:
            raise SexpEvaluationError(
                f"{info.name or 'this lambda'} takes at most {by_position} arguments, and was given {len(arguments)}",
                code="arity/closure",
            )
        return await code(rt, d, *arguments, *([MISSING] * (most - len(arguments))))

    checked.__wrapped__ = code  # type: ignore[attr-defined]
    return checked if most > least else code


def underlying(code: Code) -> Code:
    """The code of a procedure, without the part that fills in its defaults."""
    return getattr(code, "__wrapped__", code)


def as_procedure(code: Code, info: LambdaInfo, env: SexpEnvironment, grants: frozenset[str] | None) -> Closure:
    """The closure of the code of a function."""
    arity = -1 if info.optional else len(info.params)
    return Closure(filled(code, info, len(info.params) + len(info.optional)), arity, info, env, grants)


@code("k")
def unbound_name(rt: Runtime, env: SexpEnvironment, name: str, near: str | None = None) -> Any:
    """The value of a name with an empty cell: bound meanwhile further out. Raises UnboundSymbolError."""
    cell = env.find(name)
    if cell is not None:
        return cell.v
    hint = did_you_mean(name, env.names()) or near or "assign it first"
    raise unbound(name, f"'{name}' is not bound", hint, "name/unbound")


@code("k")
def reached(reach: Callable[[int], None], number: int) -> None:
    """Report that a marked part of the text is reached."""
    reach(number)


@code("k")
def assigned(cell: Cell, value: Any) -> Any:
    """``name := value`` of a variable of the environment."""
    cell.v = value
    return value


@code("k")
def check_global(rt: Runtime, env: SexpEnvironment, name: str) -> None:
    """Refuse to assign a variable of the environment within a branch."""
    if rt.branch and env.owner is not rt:
        raise SexpEvaluationError(
            f"'{name}' belongs to the code around this branch, which runs at the same time",
            code="concurrency/shared-set",
            hint="return the value from the branch and combine the results afterwards",
        )


# -- tasks and tools ----------------------------------------------------------------------------------------------


@code("k")
async def outcome_of(
    rt: Runtime, d: int, env: SexpEnvironment, name: str, names: tuple[str, ...], values: tuple[Any, ...], span: Span
) -> Any:
    """The result of a task or tool, whether or not it failed."""
    result = await rt.call_named(d, name, names, values, span, env)
    if type(result) is Label:
        failed = isinstance(result.value, TaskResult) and result.value.failed
        return box(fit_result(result.value), result.sources) if failed else result
    return fit_result(result) if isinstance(result, TaskResult) and result.failed else result


@code("k")
async def data_of(
    rt: Runtime, d: int, env: SexpEnvironment, name: str, names: tuple[str, ...], values: tuple[Any, ...], span: Span
) -> Any:
    """The data or text of a task or tool. Raises the error of a failed one."""
    result = await rt.call_named(d, name, names, values, span, env)
    if isinstance(result, TaskResult):
        return value_of(result)
    return _value_in(result) if type(result) is Label else result


def _value_in(result: Label) -> Any:
    """The data or text of a result in a box."""
    if not isinstance(result.value, TaskResult):
        return result
    try:
        return box(value_of(result.value), result.sources)
    except AgentflowError as error:
        blame(error, result.sources)
        raise


@code("k")
async def outcome_of_dict(
    rt: Runtime, d: int, env: SexpEnvironment, name: str, span: Span, arguments: dict[str, Any]
) -> Any:
    """:func:`outcome_of` with some arguments from ``**``."""
    return await outcome_of(rt, d, env, name, tuple(arguments), tuple(arguments.values()), span)


@code("k")
async def data_of_dict(
    rt: Runtime, d: int, env: SexpEnvironment, name: str, span: Span, arguments: dict[str, Any]
) -> Any:
    """:func:`data_of` with some arguments from ``**``."""
    return await data_of(rt, d, env, name, tuple(arguments), tuple(arguments.values()), span)


@code("kke")
def arguments_of(names: tuple[str, ...], values: tuple[Any, ...], *dicts: Any) -> dict[str, Any]:
    """The named arguments of a call, both the explicit ones and those of dicts."""
    arguments = dict(zip(names, values, strict=True))
    for each in dicts:
        if type(each) is not dict or not all(type(key) is str for key in each):
            raise SexpEvaluationError("'**' takes a dict with names as keys", code="type/argument")
        again = next((key for key in each if key in arguments), None)
        if again is not None:
            raise SexpEvaluationError(f"'{again}' is given twice", code="call/duplicate")
        arguments.update(each)
    return arguments


@code("k")
def task_procedure(rt: Runtime, env: SexpEnvironment, name: str, names: tuple[str, ...], span: Span) -> Closure:
    """A task or tool as a procedure of its parameters, in order."""

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        return await data_of(rt, d, env, name, names, arguments, span)

    ends = (span.start, span.end)
    info = LambdaInfo(name, names, None, span.source, *ends, ends, True, follows="strict")
    return Closure(code, len(names), info, env, rt.grants)


@code("i", out="bare")
def listed(rt: Runtime, value: Any) -> list[Any]:
    """The elements that branches iterate over."""
    return list(elements(rt, value, "pmap"))


@code()
async def log_text(rt: Runtime, separator: Any, values: tuple[Any, ...]) -> str:
    """The text of ``print(...)``."""
    parts: list[str] = []
    for each in values:
        part = text(rt, each)
        parts.append(await rt.work(part.work) if type(part) is Sliced else part)
    return joined(rt, (separator if type(separator) is str else " ").join(parts))


@code("o")
def context_paths(context: Any) -> list[Any]:
    """The result of a question to memory, as a list."""
    return list(context)


# -- programs -----------------------------------------------------------------------------------------------------


@code("k")
def rebound(rt: Runtime, env: SexpEnvironment, cell: Cell, name: str) -> Code:
    """The code behind a variable of the environment that may have been rebound since the program was linked."""
    value = cell.v
    function = unbound_name(rt, env, name) if value is UNBOUND else value

    async def code(rt: Runtime, d: int, *arguments: Any) -> Any:
        values = list(arguments)
        while values and values[-1] is MISSING:
            values.pop()
        return await call(rt, d - 1, function, tuple(values))

    return code


@code("k")
def missing_keyword(name: str) -> NoReturn:
    """Raise ``arity/closure``: a keyword-only parameter is missing."""
    raise SexpEvaluationError(f"the call misses '{name}'", code="arity/closure", hint=f"write {name}=...")


@code("k")
def binding(env: SexpEnvironment, name: str, required: bool) -> Any:
    """The value that the host bound to a parameter of ``main``. Raises UnboundSymbolError."""
    cell = env.find(name)
    if cell is None and required:
        raise unbound(name, f"main takes '{name}', and nothing is bound to it", "give it by bindings", "name/unbound")
    return MISSING if cell is None else cell.v
