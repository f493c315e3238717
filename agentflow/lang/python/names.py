"""Scopes: which function a name belongs to, found before any code is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentflow.lang.codegen import PyFn
from agentflow.lang.python.reader import children

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class Var:
    """A local variable: ``py`` its name in the code, ``fn`` the function it lives in once that is being written.

    ``shared`` says that an inner function assigns it; ``function`` is the definition it is bound to, if by one ``def`` only.
    ``lists`` counts the assignments of a list as it is written.
    """

    name: str
    py: str
    scope: Scope
    fn: PyFn | None = None
    shared: bool = False
    writes: int = 0
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    lists: int = 0

    @property
    def is_list(self) -> bool:
        """Whether the variable certainly holds a list, if anything."""
        return self.lists == self.writes and not self.shared

    @property
    def known(self) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The definition that the variable certainly holds."""
        return self.function if self.writes == 1 and not self.shared else None


@dataclass(eq=False)
class Scope:
    """The names of a function or comprehension; the module's has no variables, only names that it ``defined``.

    ``nodes`` are its own, without those of scopes within.
    """

    parent: Scope | None
    node: Function | Comprehension | ast.Module
    vars: dict[str, Var] = field(default_factory=dict[str, Var])
    globals: set[str] = field(default_factory=set[str])
    nonlocals: set[str] = field(default_factory=set[str])
    nodes: list[ast.AST] = field(default_factory=list[ast.AST])

    @property
    def is_function(self) -> bool:
        """Whether it is the scope of a function or lambda."""
        return isinstance(self.node, FUNCTIONS)

    def find(self, name: str) -> Var | None:
        """The variable that ``name`` means here; None for one of the module."""
        at: Scope | None = self
        while at is not None:
            if name in at.globals:
                return None
            var = at.vars.get(name)
            if var is not None:
                return var
            at = at.parent
        return None


class Names:
    """The scopes of a program. ``defined`` counts how often the module's names are assigned, anywhere.

    ``functions`` are the module's functions by name, those that are the only assignment of their name. ``wrong`` are
    ``nonlocal`` statements without a variable.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.scopes: dict[ast.AST, Scope] = {}
        self.defined: dict[str, int] = {}
        self.wrong: list[tuple[ast.AST, str]] = []
        self._definitions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._count = 0
        self.module = self._scope(None, tree)

    def function(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function that a name of the module certainly is, unless somebody outside of the program rebinds it."""
        return self._definitions.get(name) if self.defined.get(name) == 1 else None

    def _scope(self, parent: Scope | None, node: Function | Comprehension | ast.Module) -> Scope:
        scope = self.scopes[node] = Scope(parent, node)
        inner: list[ast.AST] = []
        nodes = scope.nodes = list(own_nodes(parts_of(node), inner))
        naming = [
            each for each in nodes if type(each) in _NAMING
        ]  # a fraction of them: what follows asks several questions of each
        for each in naming:
            if isinstance(each, ast.Global):
                scope.globals.update(each.names)
            elif isinstance(each, ast.Nonlocal):
                scope.nonlocals.update(each.names)
                self._borrow(scope, each)
        if isinstance(node, FUNCTIONS):
            for each in parameters(node.args):
                self._bind(scope, each)
        for each in naming:
            for name in bound_by(each):
                self._bind(scope, name, each)
        for name in _lists(naming):
            if name in scope.vars:
                scope.vars[name].lists += 1
        for each in inner:
            if isinstance(each, (*FUNCTIONS, *COMPREHENSIONS)):
                self._scope(scope, each)
        return scope

    def _bind(self, scope: Scope, name: str, by: ast.AST | None = None) -> None:
        function = by if isinstance(by, ast.FunctionDef | ast.AsyncFunctionDef) else None
        if name in scope.nonlocals:
            return
        if scope.parent is None or name in scope.globals:
            self.defined[name] = self.defined.get(name, 0) + 1
            if function is not None:
                self._definitions[name] = function
            return
        var = scope.vars.get(name)
        if var is None:
            self._count += 1
            var = scope.vars[name] = Var(name, f"v_{name}_{self._count}", scope)
        var.writes += 1
        var.function = function

    def _borrow(self, scope: Scope, node: ast.Nonlocal) -> None:
        """Variables of the functions around that an inner one assigns."""
        for name in node.names:
            var = scope.parent.find(name) if scope.parent is not None else None
            if var is None:
                self.wrong.append((node, name))
            else:
                var.shared = True


def all_parameters(args: ast.arguments) -> list[ast.arg]:
    """All parameters, in order."""
    return [*args.posonlyargs, *args.args, *args.kwonlyargs]


def parameters(args: ast.arguments) -> list[str]:
    """The names of all parameters, in order."""
    return [each.arg for each in all_parameters(args)]


def _lists(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The names that these statements assign a list as it is written, once for each assignment."""
    for node in nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.List | ast.ListComp):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                yield target.id


def parts_of(node: Function | Comprehension | ast.Module) -> Sequence[ast.AST]:
    """What belongs to the scope of a function, comprehension or module. The first iterable of a comprehension does not."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
        return node.body
    parts: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    for at, each in enumerate(node.generators):
        parts += [each.target, *each.ifs, *([each.iter] if at else [])]
    return parts


def own_nodes(body: Sequence[ast.AST], inner: list[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a scope in order; ``inner`` collects those that open one of their own."""
    pending = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, FUNCTIONS):
            inner.append(node)
            outside = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
            pending.extend(reversed(outside))
        elif isinstance(node, COMPREHENSIONS):
            inner.append(node)
            pending.append(node.generators[0].iter)
        elif not isinstance(node, ast.ClassDef):
            pending.extend(reversed(children(node)))


BINDING = frozenset((ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler))
"""The kinds of nodes that may bind names."""


_NAMING = BINDING | {ast.Global, ast.Nonlocal, ast.Assign, ast.AnnAssign}
"""The kinds of nodes that say what names mean in a scope."""


def bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.ExceptHandler):
        yield from [node.name] if node.name is not None else []
