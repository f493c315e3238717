"""The kinds of node. The differences between the surfaces are data in a node: a function, a name, a flag."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Span
from agentflow.lang.abi import Operation
from agentflow.lang.closure import LambdaInfo

FRAME_HEAD = 6
"""Slots at the beginning of a frame at run time: the frame around it, its kind, the depth of the call, and the strand."""
PARENT, KIND, DEPTH, STRAND, BEGAN, CAUGHT = range(FRAME_HEAD)


class FrameLayout:
    """The variables of a function, a comprehension, or a scope with new variables in each round."""

    def __init__(self, parent: FrameLayout | None, *, is_function: bool = True) -> None:
        self.parent = parent
        self.is_function = is_function
        self.size = FRAME_HEAD


class Variable:
    """A local variable: a slot in a frame. ``shared``: another function assigns it, so the owner strand is checked.

    ``name`` is empty for one that no text names.
    """

    private = True
    """Only the function that it belongs to reads and assigns it."""
    unsure = False
    """It may have no value when it is read."""
    parameter = False

    def __init__(self, name: str, frame: FrameLayout, *, shared: bool = False) -> None:
        self.name = name
        self.frame = frame
        self.shared = shared
        self.slot = frame.size
        frame.size += 1


def owner_of(frame: FrameLayout) -> Variable:
    """The strand that a frame belongs to, as if it were a variable in it."""
    owner = Variable("", frame)
    frame.size -= 1
    owner.slot = STRAND
    return owner


@dataclass(eq=False)
class Node:
    """A node; ``at`` is its place in the text, for errors."""

    at: Span | None


@frozen(eq=False)
class LoweredInfo(LambdaInfo):
    """The description of a procedure that asks containers for their labels: it gets its arguments as they are."""


@dataclass(eq=False)
class Const(Node):
    """A constant. For a function of the language as a value, ``row`` is its row; for a method the type, its name, and its notation."""

    value: Any
    row: Any = None


@dataclass(eq=False)
class Env(Node):
    """The environment that the program is linked to."""


@dataclass(eq=False)
class Ref(Node):
    """The value of a local variable, or of one of the environment by name. ``hint`` is for an unbound one."""

    variable: Variable | str
    hint: str | None = None


@dataclass(eq=False)
class Set(Node):
    """Gives a variable a value, which is also the value of the node.

    ``how``: ``bind`` assigns as Python does, or initialises; ``set`` and ``define`` are those of S-expressions.
    """

    variable: Variable | str
    value: Node
    how: Literal["bind", "set", "define"] = "bind"
    direct: bool = False


@dataclass(eq=False)
class Del(Node):
    """Takes the value of a variable away."""

    variable: Variable | str


@dataclass(eq=False)
class Prim(Node):
    """A function of the language, called with values; ``takes_rt``: with the strand first.

    ``waits``: it takes the strand and a depth, so many deeper than here, and is awaited. ``names`` are the keywords of the last
    arguments. ``is_tail``: a call that it leaves to its caller may be left to the caller of the code, too. Its result may be work
    that is left for slices.
    """

    function: Callable[..., Any]
    args: list[Node]
    names: tuple[str, ...] = ()
    takes_rt: bool = False
    waits: int | None = None
    is_tail: bool = False
    row: Any = None


@dataclass(eq=False)
class Call(Node):
    """A procedure value, called; ``names`` are the keywords of the last arguments.

    ``picks_first``: whether it can be called so is decided before the arguments are evaluated.
    """

    function: Node
    args: list[Node]
    names: tuple[str, ...] = ()
    is_tail: bool = False
    picks_first: bool = False


@dataclass(eq=False)
class Either(Node):
    """``(f (name value) ...)``: a call with named arguments if ``f`` takes names, else of ``f`` with the results of other calls.

    ``links`` are the operators between ``f`` and each name in ``(f (g (name value)))``.
    """

    function: Node
    pairs: list[EitherPair]
    is_tail: bool = False


@dataclass(eq=False)
class EitherPair(Node):
    """An operand of :class:`Either`: ``applied`` is ``name`` called with ``value``, which ``variable`` then holds."""

    names: list[str]
    links: list[EitherLink]
    variable: Variable
    value: Node
    applied: Node


@dataclass(eq=False)
class EitherLink(Node):
    """An operator of a pair that is not yet known to take names; ``effect`` makes the effect that it certainly is."""

    function: Node
    effect: Callable[[Any, dict[str, Any]], Any] | None = None


@dataclass(eq=False)
class Effect(Node):
    """A task or tool by name. ``spread`` are dicts with more arguments. ``gives``: its data, or its result."""

    name: str
    names: tuple[str, ...]
    args: list[Node]
    spread: list[Node] = field(default_factory=list[Node])
    gives: Literal["data", "outcome"] = "data"


@dataclass(eq=False)
class Perform(Node):
    """An effect that ``make`` builds of the environment and the values."""

    make: Callable[..., Any]
    args: list[Node]


@dataclass(eq=False)
class Op(Node):
    """An operation of the runtime; ``constants`` are its first arguments."""

    operation: Operation
    constants: list[Any]
    args: list[Node]


@dataclass(eq=False)
class Lambda(Node):
    """A procedure. ``defaults``: for each parameter None (required), :data:`MISSING_KEYWORD`, or the node of its default.

    ``gives_body``: its value is the body's; otherwise that of a ``return``.
    """

    info: LambdaInfo
    params: list[Variable]
    defaults: list[Any]
    frame: FrameLayout
    body: Node
    rest: Variable | None = None
    gives_body: bool = False
    by_position: int = 0


MISSING_KEYWORD = object()
"""In place of a default: the keyword is required."""


@dataclass(eq=False)
class Thunk(Node):
    """A part of the program as code that the runtime runs. ``steps``: running it takes a step."""

    body: Node
    frame: FrameLayout | None = None
    steps: bool = False


@dataclass(eq=False)
class If(Node):
    """A choice."""

    test: Node
    then: Node
    other: Node


@dataclass(eq=False)
class Logic(Node):
    """``and`` (``every``) or ``or``."""

    every: bool
    items: list[Node]


@dataclass(eq=False)
class Seq(Node):
    """Nodes one after the other, with the value of the last. ``frame``: variables that are new each time."""

    items: list[Node]
    frame: FrameLayout | None = None


@dataclass(eq=False)
class While(Node):
    """Rounds of ``body`` as long as ``test`` is ``sense``. ``steps_first``: the step of a round is taken before its test."""

    test: Node
    body: Node
    other: Node | None = None
    sense: bool = True
    steps_first: bool = False


@dataclass(eq=False)
class For(Node):
    """A round of ``body`` for each element of ``over``, which ``item`` gets. ``watched``: its rounds are reported."""

    over: Node
    item: Variable | str | None
    body: Node
    other: Node | None = None
    watched: bool = False


@dataclass(eq=False)
class Collect(Node):
    """A comprehension: ``body`` is a loop around a :class:`Yield`. ``any`` and ``all`` end at the value that decides."""

    kind: Literal["list", "set", "dict", "any", "all"]
    frame: FrameLayout
    body: Node


@dataclass(eq=False)
class Yield(Node):
    """An element of the comprehension around it."""

    key: Node | None
    value: Node | None


@dataclass(eq=False)
class NamedLet(Node):
    """A named let with calls that are all its next rounds. ``frame``: its variables are new in each."""

    params: list[Variable]
    inits: list[Node]
    body: Node
    frame: FrameLayout | None


@dataclass(eq=False)
class Again(Node):
    """The next round of a :class:`NamedLet`."""

    loop: NamedLet
    args: list[Node]


@dataclass(eq=False)
class Try(Node):
    """``handlers``: (names of classes, or None for each; variable; body)."""

    body: Node
    handlers: list[tuple[tuple[str, ...] | None, Variable | str | None, Node]]
    other: Node | None = None
    final: Thunk | None = None


@dataclass(eq=False)
class Raise(Node):
    """Raises the exception that ``value`` is; without, the one in hand again."""

    value: Node | None


@dataclass(eq=False)
class Leave(Node):
    """``return``, ``break``, ``continue``."""

    how: Literal["return", "break", "continue"]
    value: Node | None = None


def parts(node: Node) -> Iterator[Node]:
    """The nodes directly within one."""
    pending: list[Any] = [getattr(node, each.name) for each in fields(node) if each.name != "loop"]
    while pending:
        at = pending.pop(0)
        if isinstance(at, Node):
            yield at
        elif isinstance(at, list | tuple):
            pending = [*at, *pending]
