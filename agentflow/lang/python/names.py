"""Scopes: which function a name belongs to, found before any code is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentflow.lang.kernel.code_writer import PyFn
from agentflow.lang.python.reader import children

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class LocalVariable:
    """A local variable: ``py`` its name in the code, ``fn`` the function that holds it once that is being written.

    ``shared``: an inner function assigns it; ``function`` is the definition it is bound to, if by one ``def`` only.
    ``values`` are the values that statements assign to it as a whole: expressions, and for all others the statements. ``operations`` counts
    the operators that have it as an operand in its own function.
    """

    name: str
    py: str
    scope: PythonScope
    fn: PyFn | None = None
    shared: bool = False
    writes: int = 0
    function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    values: list[ast.AST] = field(default_factory=list[ast.AST])
    operations: int = 0

    @property
    def is_seen(self) -> bool:
        """Whether ``values`` are all values that the variable ever holds."""
        return len(self.values) == self.writes and not self.shared

    @property
    def is_list(self) -> bool:
        """Whether the variable can only hold a list created by its own function."""
        return self.is_seen and all(isinstance(each, ast.List | ast.ListComp) for each in self.values)

    @property
    def known(self) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The definition that the variable certainly holds."""
        return self.function if self.writes == 1 and not self.shared else None


@dataclass(eq=False)
class PythonScope:
    """The names of a function or comprehension; the module's has no variables, only names that it ``defined``.

    ``nodes`` are its own, without those of scopes within.
    """

    parent: PythonScope | None
    node: Function | Comprehension | ast.Module
    vars: dict[str, LocalVariable] = field(default_factory=dict[str, LocalVariable])
    globals: set[str] = field(default_factory=set[str])
    nonlocals: set[str] = field(default_factory=set[str])
    nodes: list[ast.AST] = field(default_factory=list[ast.AST])

    @property
    def is_function(self) -> bool:
        """Whether it is the scope of a function or lambda."""
        return isinstance(self.node, FUNCTIONS)

    def find(self, name: str) -> LocalVariable | None:
        """The variable that ``name`` means here; None for one of the module."""
        at: PythonScope | None = self
        while at is not None:
            if name in at.globals:
                return None
            var = at.vars.get(name)
            if var is not None:
                return var
            at = at.parent
        return None


class ProgramScopes:
    """The scopes of a program. ``defined`` counts how often the module's names are assigned, anywhere.

    ``functions`` are the module's functions by name, if nothing else assigns the name. ``wrong`` are
    ``nonlocal`` statements without a variable, ``classes`` the names of all classes. ``captured`` are the variables that
    inner functions read, once computed (:func:`agentflow.lang.kernel.local_variables.captured`).
    """

    def __init__(self, tree: ast.Module) -> None:
        self.scopes: dict[ast.AST, PythonScope] = {}
        self.defined: dict[str, int] = {}
        self.wrong: list[tuple[ast.AST, str]] = []
        self.classes: set[str] = set()
        self.captured: set[LocalVariable] | None = None
        self._definitions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self._count = 0
        self.module = self._scope(None, tree)

    def function(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function that a name of the module certainly means, unless outer code rebinds it."""
        return self._definitions.get(name) if self.defined.get(name) == 1 else None

    def announced(self, tree: ast.Module) -> set[str]:
        """Names of tasks and tools that a text announces: its imports from ``agentflow.workflow``, and the names that
        ``@workflow`` allows."""
        names: set[str] = set()
        for each in tree.body:
            if isinstance(each, ast.ImportFrom) and each.module == "agentflow.workflow":
                names.update(alias.name for alias in each.names)
        main = self.function("main")
        for decorator in main.decorator_list if main is not None else ():
            for option in decorator.keywords if isinstance(decorator, ast.Call) else ():
                names.update(
                    item.value
                    for item in getattr(option.value, "elts", ())
                    if isinstance(item, ast.Constant) and isinstance(item.value, str)
                )
        return names

    def _scope(self, parent: PythonScope | None, node: Function | Comprehension | ast.Module) -> PythonScope:
        scope = self.scopes[node] = PythonScope(parent, node)
        inner: list[Function | Comprehension] = []
        nodes = scope.nodes = list(own_nodes(parts_of(node), inner))
        binding: list[ast.AST] = []
        holding: list[ast.AST] = []
        for each in nodes:
            kind = type(each)
            if kind is ast.Name:
                if type(each.ctx) is not ast.Load:  # type: ignore[attr-defined]
                    binding.append(each)
            elif kind in BINDING:
                binding.append(each)
            elif kind in _HOLDING:
                holding.append(each)
            elif kind in _DECLARING:
                self._declare(scope, each)
        if isinstance(node, FUNCTIONS):
            for each in parameters(node.args):
                self._bind(scope, each)
        for each in binding:
            for name in bound_by(each):
                self._bind(scope, name, each)
        if scope.vars:
            _note_values(scope, holding)
        for each in inner:
            self._scope(scope, each)
        return scope

    def _declare(self, scope: PythonScope, node: ast.AST) -> None:
        """Note the declarations of names in a statement that assigns no value."""
        if isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.nonlocals.update(node.names)
            self._borrow(scope, node)
        elif isinstance(node, ast.ClassDef):
            self.classes.add(node.name)

    def release(self) -> None:
        """Break reference cycles once they are no longer needed: otherwise the collector would have to find them."""
        for scope in self.scopes.values():
            scope.vars.clear()
        self.scopes.clear()

    def _bind(self, scope: PythonScope, name: str, by: ast.AST | None = None) -> None:
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
            var = scope.vars[name] = LocalVariable(name, f"v_{name}_{self._count}", scope)
        var.writes += 1
        var.function = function

    def _borrow(self, scope: PythonScope, node: ast.Nonlocal) -> None:
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


def _note_values(scope: PythonScope, nodes: Sequence[ast.AST]) -> None:
    """Note the values assigned to the variables of a scope, and the operators on them."""
    if isinstance(scope.node, COMPREHENSIONS):
        nodes = [*nodes, *scope.node.generators]
    for node in nodes:
        if isinstance(node, ast.BinOp):
            operands: list[ast.expr] = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
        else:
            for target, value in _assigned(node):
                var = scope.vars.get(target.id) if isinstance(target, ast.Name) else None
                if var is not None:
                    var.values.append(value)
            operands = [node.target] if isinstance(node, ast.AugAssign) else []
        for each in operands:
            if isinstance(each, ast.Name) and each.id in scope.vars:
                scope.vars[each.id].operations += 1


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.AST]]:
    """The targets of a statement or expression, with the value of each."""
    if isinstance(node, ast.Assign):
        return [(target, node.value) for target in node.targets]
    if isinstance(node, ast.AnnAssign | ast.NamedExpr):
        return [] if node.value is None else [(node.target, node.value)]
    if isinstance(node, ast.AugAssign | ast.For | ast.comprehension):
        return [(node.target, node)]
    return []


def is_range(node: ast.expr) -> bool:
    """Whether an expression is a call of the name ``range`` with plain arguments."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and not node.keywords
        and not any(isinstance(each, ast.Starred) for each in node.args)
    )


def parts_of(node: Function | Comprehension | ast.Module) -> Sequence[ast.AST]:
    """The nodes in the scope of a function, comprehension or module. The first iterable of a comprehension is not among
    them."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
        return node.body
    parts: list[ast.AST] = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    for at, each in enumerate(node.generators):
        parts += [each.target, *each.ifs, *([each.iter] if at else [])]
    return parts


def own_nodes(body: Sequence[ast.AST], inner: list[Function | Comprehension]) -> Iterator[ast.AST]:
    """The nodes of a scope in order; ``inner`` collects those that open one of their own."""
    pending = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        kind = type(node)
        if kind is ast.Name or kind is ast.Constant:
            continue
        if kind not in _APART:
            pending.extend(reversed(children(node)))
        elif isinstance(node, FUNCTIONS):
            inner.append(node)
            outside = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
            pending.extend(reversed(outside))
        elif isinstance(node, COMPREHENSIONS):
            inner.append(node)
            pending.append(node.generators[0].iter)


BINDING = frozenset((ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler))
"""The kinds of nodes that may bind names."""
_APART = frozenset((*FUNCTIONS, *COMPREHENSIONS, ast.ClassDef))
"""The kinds of nodes with parts that belong, partly or all, to another scope than their own."""
_DECLARING = frozenset((ast.Global, ast.Nonlocal, ast.ClassDef))

_HOLDING = frozenset(
    (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.BinOp, ast.Compare)
)
"""The kinds of nodes that assign variables or use them."""


def bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.ExceptHandler):
        yield from [node.name] if node.name is not None else []
