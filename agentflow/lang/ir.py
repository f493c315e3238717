"""The program between analysis and code generation: names resolved, forms reduced to a few kinds of node.

Every node has ``at``, the syntax it came from. Trees are as deep as the program text is, which the reader bounds.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, TypeAlias

from agentflow.core.data.frozen import slotted
from agentflow.lang.abi import Operation
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.syntax import Node

FunctionKind: TypeAlias = Literal["main", "lambda", "branch", "thunk"]


class Function:
    """A function in the program: the whole, a lambda, a branch of ``parallel`` and similar forms, or a part run in place.

    A named let that turns out to be a loop is ``merged`` into the function around it.
    """

    __slots__ = ("kind", "merged", "parent")

    def __init__(self, kind: FunctionKind, parent: Function | None) -> None:
        self.kind: FunctionKind = kind
        self.parent = parent
        self.merged = False

    @property
    def real(self) -> Function:
        """The function that contains the code of this one."""
        at = self
        while at.merged:
            assert at.parent is not None
            at = at.parent
        return at

    def path_to(self, outer: Function) -> list[FunctionKind]:
        """The kinds of the functions between here (included) and ``outer`` (excluded), innermost first."""
        kinds: list[FunctionKind] = []
        at, end = self.real, outer.real
        while at is not end:
            kinds.append(at.kind)
            assert at.parent is not None
            at = at.parent.real
        return kinds


class Var:
    """A lexical variable.

    ``captured``: a lambda or branch other than its own function reads it; ``mutated``: ``set!`` changes it;
    ``escapes``: its value is used other than by being called; ``early``: it is read, in its own function, before its
    definition; ``shared``: ``set!`` happens in another lambda, so the owner strand must be known; ``counts``: with how
    many operands it is called.
    ``value`` is the lambda it is bound to. The name of a named let has its ``arity``, and is ``looping`` while all its
    uses are tail calls of itself. ``readers`` and ``writers`` are the functions that use it.
    """

    __slots__ = (
        "arity",
        "captured",
        "counts",
        "defined",
        "early",
        "escapes",
        "function",
        "looping",
        "mutated",
        "name",
        "py",
        "readers",
        "shared",
        "value",
        "writers",
    )

    def __init__(self, name: str, py: str, function: Function) -> None:
        self.name = name
        self.py = py
        self.function = function
        self.captured = False
        self.mutated = False
        self.escapes = False
        self.early = False
        self.shared = False
        self.defined = True
        self.value: Lambda | None = None
        self.arity: int | None = None
        self.counts: set[int] = set()
        self.looping = True
        self.readers: set[Function] = set()
        self.writers: list[tuple[Function, SetLocal]] = []

    @property
    def known(self) -> Lambda | None:
        """The lambda this variable always is, if so."""
        return None if self.mutated or self.early else self.value


@slotted
class Const:
    at: Node
    value: Any


@slotted
class Quote:
    """Quoted data, copied at each evaluation."""

    at: Node
    value: Any


@slotted
class MakeDict:
    at: Node
    keys: list[Any]
    values: list[IR]


@slotted
class Local:
    at: Node
    var: Var


@slotted
class Global:
    """A variable of the environment."""

    at: Node
    name: str


@slotted
class Unknown:
    """A name that was unbound at compile time; looked up when reached. ``near`` are the variables that it may be meant for."""

    at: Node
    name: str
    near: tuple[str, ...]


@slotted
class Prim:
    at: Node
    primitive: Primitive


@slotted
class Dynamic:
    """``*loop-config*``: the one variable with dynamic scope."""

    at: Node


@slotted
class CurrentEnvironment:
    """The environment of the code, as an operand of look-ups and definitions of tasks."""

    at: Node


@slotted
class SetLocal:
    at: Node
    var: Var
    value: IR
    foreign: bool = False


@slotted
class SetGlobal:
    at: Node
    name: str
    value: IR
    foreign: bool = False


@slotted
class DefineGlobal:
    at: Node
    name: str
    value: IR


@slotted
class If:
    at: Node
    test: IR
    then: IR
    other: IR


@slotted
class Cond:
    """Clauses tried in order, each a test and a body; ``bind`` holds the test's value for ``=>`` (and empty bodies)."""

    at: Node
    clauses: list[Clause]
    other: IR


@slotted
class Clause:
    test: IR
    body: IR
    bind: Var | None = None


@slotted
class Logic:
    """``and`` and ``or``."""

    at: Node
    every: bool
    items: list[IR]


@slotted
class Seq:
    at: Node
    items: list[IR]


@slotted
class Let:
    """Variables set one after the other, then a body. Names being unique, it serves ``let``, ``let*`` and bodies.

    ``vars`` are all variables of the scope; those without an initialiser are set by a :class:`Define` in the body.
    """

    at: Node
    vars: list[Var]
    inits: list[tuple[Var, IR]]
    body: IR


@slotted
class Define:
    """Sets a variable of the enclosing :class:`Let`."""

    at: Node
    var: Var
    value: IR


@slotted
class Lambda:
    at: Node
    name: str | None
    params: list[Var]
    rest: Var | None
    body: IR
    function: Function
    self_var: Var | None = None
    self_global: str | None = None
    body_place: tuple[int, int] = (0, 0)
    portable: bool = True

    def takes(self, count: int) -> bool:
        """Whether its code can be called directly with this number of operands."""
        return self.rest is None and len(self.params) == count


@slotted
class Call:
    """``operator`` applied to ``args``. ``pairs`` gives the names the operands would have if it names a task or tool."""

    at: Node
    operator: IR
    args: list[IR]
    pairs: list[Pair] | None = None
    self_tail: bool = False


@slotted
class Pair:
    """An operand ``(name expr)``: a named argument or a call, as the operator before it takes names or not.

    In ``(f (g (h x)))`` the same question is open for ``g`` when ``f`` takes none: ``links`` are those outer calls, from the
    outside in. ``name`` and ``value`` are the innermost pair's; ``var`` holds its value, which is evaluated once in any
    case, and ``applied`` is ``name`` called on that.
    """

    links: list[Link]
    at: Node
    name: str
    var: Var
    value: IR
    applied: IR

    @property
    def names(self) -> list[str]:
        """The names from the outside in, one more than there are links."""
        return [*(each.name for each in self.links), self.name]


@slotted
class Link:
    """``operator`` in ``(operator (name expr))``, not yet known to take names or not.

    ``effect`` is the kind of effect that it certainly is, which takes names always.
    """

    at: Node
    name: str
    operator: Local | Global | Unknown
    effect: str | None = None


@slotted
class PrimCall:
    at: Node
    primitive: Primitive
    args: list[IR]


@slotted
class EffectCall:
    """A call of a task, tool or other effect with named arguments. ``kind``: task, tool, context, items, workflow."""

    at: Node
    kind: str
    name: str
    names: list[str]
    args: list[IR]


@slotted
class RuntimeCall:
    """An operation of the runtime: ``rt.operation(op, d, span, *constants, *args)``, awaited."""

    at: Node
    op: Operation
    args: list[IR]
    constants: list[Any] = field(default_factory=list[Any])


@slotted
class Thunk:
    """A part of the program as a function ``(rt, d)``: a branch, or the body of ``timeout``, ``retry``, ``finally``."""

    at: Node
    body: IR
    function: Function


@slotted
class ThunkList:
    at: Node
    items: list[IR]


@slotted
class NamedLoop:
    """A named let called only in its own tail positions: a loop."""

    at: Node
    params: list[Var]
    inits: list[IR]
    body: IR
    loop: Var


@slotted
class Repeat:
    """``(loop n body)``."""

    at: Node
    count: IR
    body: IR


@slotted
class While:
    """``while`` and ``do``: ``body`` as long as ``test`` is ``sense``; then ``result``."""

    at: Node
    test: IR
    sense: bool
    body: IR
    result: IR


@slotted
class Try:
    at: Node
    body: IR
    var: Var | None
    handler: IR | None
    final: Thunk | None


IR: TypeAlias = (
    Const
    | Quote
    | MakeDict
    | Local
    | Global
    | Unknown
    | Prim
    | Dynamic
    | CurrentEnvironment
    | SetLocal
    | SetGlobal
    | DefineGlobal
    | If
    | Cond
    | Logic
    | Seq
    | Let
    | Define
    | Lambda
    | Call
    | PrimCall
    | EffectCall
    | RuntimeCall
    | Thunk
    | ThunkList
    | NamedLoop
    | Repeat
    | While
    | Try
)
