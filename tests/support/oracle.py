"""The language in sixty lines: a plain recursive evaluator of data, slow and obvious, that the compiler must agree with.

It covers the sequential core. Effects are calls of Python callables found in the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.values import Symbol
from agentflow.lang.builtins import PRIMITIVES

Scope = dict[str, Any]


class Raised(Exception):
    """What ``(raise v)`` raised, or an error of the language."""


def evaluate(x: Any, scopes: tuple[Scope, ...], rt: Any) -> Any:
    """The value of the datum ``x`` in ``scopes``, innermost first."""

    def ev(y: Any, inner: tuple[Scope, ...] = scopes) -> Any:
        return evaluate(y, inner, rt)

    def body(forms: list[Any], inner: tuple[Scope, ...]) -> Any:
        return [ev(form, inner) for form in forms][-1] if forms else []

    if isinstance(x, Symbol):
        return _lookup(x.name, scopes, rt)
    if not isinstance(x, list) or not x:
        return {key: ev(value) for key, value in x.items()} if isinstance(x, dict) else x
    head = x[0].name if isinstance(x[0], Symbol) and not any(x[0].name in s for s in scopes) else ""
    match head, x[1:]:
        case "quote", [value]:
            return value
        case "if", [test, yes, *no]:
            return ev(yes) if ev(test) else body(no, scopes)
        case "progn" | "begin", forms:
            return body(forms, scopes)
        case "and" | "or", forms:
            value: Any = head == "and"
            for form in forms:
                value = ev(form)
                if bool(value) == (head == "or"):
                    break
            return value
        case "when" | "unless", [test, *forms]:
            return body(forms, scopes) if bool(ev(test)) == (head == "when") else []
        case "cond", clauses:
            for test, *forms in clauses:
                found = test == "else" or ev(test)
                if found:
                    return body(forms, scopes) if forms else found
            return []
        case "let", [Symbol() as name, bindings, *forms]:
            own: Scope = {}
            own[name.name] = _procedure([b[0].name for b in bindings], forms, (own, *scopes), body)
            return own[name.name](*[ev(e) for _, e in bindings])
        case "let", [bindings, *forms]:
            return body(forms, ({n.name: ev(e) for n, e in bindings}, *scopes))
        case "let*", [bindings, *forms]:
            for n, e in bindings:
                scopes = ({n.name: ev(e, scopes)}, *scopes)
            return body(forms, ({}, *scopes))
        case "let-values", [bindings, *forms]:
            own = {}
            for names, e in bindings:
                elements = ev(e)
                if not isinstance(elements, list) or len(elements) != len(names):
                    raise Raised("values")
                own |= {n.name: each for n, each in zip(names, elements, strict=True)}
            return body(forms, (own, *scopes))
        case "case-lambda", clauses:
            cases = {len(names): _procedure([p.name for p in names], forms, scopes, body) for names, *forms in clauses}
            return lambda *arguments: cases.get(len(arguments), _procedure([], [], scopes, body))(*arguments)
        case "lambda", [parameters, *forms]:
            return _procedure([p.name for p in parameters], forms, scopes, body)
        case (("define" | "bind"), [Symbol() as name, e]):
            scopes[0][name.name] = value = ev(e)
            return value
        case "define", [[Symbol() as name, *parameters], *forms]:
            scopes[0][name.name] = value = _procedure([p.name for p in parameters], forms, scopes, body)
            return value
        case "set!", [name, e]:
            value = ev(e)
            next(s for s in scopes if name.name in s)[name.name] = value
            return value
        case "loop", [count, form]:
            return body([form] * ev(count), scopes)
        case "raise", [e]:
            raise Raised(ev(e))
        case "try", [*forms, ["catch", [name], *handler], ["finally", *last]]:
            try:
                return body(forms, scopes)
            except Raised as error:
                return body(handler, ({name.name: error}, *scopes))
            finally:
                body(last, scopes)
        case "guard", [[name, *clauses], *forms]:
            try:
                return body(forms, ({}, *scopes))
            except Raised as error:
                inner = ({name.name: error}, *scopes)
                for test, *handler in clauses:
                    if test == "else" or ev(test, inner):
                        return body(handler, inner)
                raise
        case "dynamic-wind", parts:
            before, during, after = [ev(part) for part in parts]
            before()
            try:
                return during()
            finally:
                after()
        case _:
            function, *arguments = [ev(part) for part in x]
            if not isinstance(function, Callable):
                raise Raised(f"{function!r} cannot be called")
            return function(*arguments)


def _procedure(names: list[str], forms: list[Any], scopes: tuple[Scope, ...], body: Any) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if len(arguments) != len(names):
            raise Raised("arity")
        return body(forms, (dict(zip(names, arguments, strict=True)), *scopes))

    return call


def _lookup(name: str, scopes: tuple[Scope, ...], rt: Any) -> Any:
    for scope in scopes:
        if name in scope:
            return scope[name]
    if name not in PRIMITIVES:
        raise Raised(f"{name} is not bound")
    made = PRIMITIVES[name]

    def call(*arguments: Any) -> Any:
        try:
            made.check_arity(len(arguments))
            return rt.call(made, *arguments)
        except SexpEvaluationError as error:
            raise Raised(error.code) from error

    return call
