"""The kinds of node. The differences between the surfaces are data in a node: a function, a name, a flag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from agentflow.core.data.frozen import frozen, slotted
from agentflow.core.data.source import Span
from agentflow.core.events import effects
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
    python_name = ""
    """Its name in generated code, unique in the program; a variable that no text names gets one when it is first written."""
    is_assigned = True
    """It may get another value than its first."""
    is_unsteady = False
    """For analyses: code that runs meanwhile may assign it, so that it may have any value."""
    is_value = True
    """Its value is used other than by being called with as many arguments as its procedure takes."""
    procedure: Lambda | None = None
    """The procedure that it always holds."""
    local: Any = None
    """In texts in Python, the description by their scopes (:class:`~agentflow.lang.python.names.LocalVariable`)."""

    def __init__(self, name: str, frame: FrameLayout, *, shared: bool = False) -> None:
        self.name = name
        self.frame = frame
        self.shared = shared
        self.slot = frame.size
        frame.size += 1


def owner_of(variable: Variable) -> Variable:
    """The strand that a variable belongs to, as if it were a variable in the same frame."""
    owner = Variable("", variable.frame)
    variable.frame.size -= 1
    owner.slot = STRAND
    owner.python_name = f"o_{variable.python_name}"
    return owner


@slotted(eq=False)
class Node:
    """A node; ``at`` is its place in the text, for errors."""

    at: Span | None


@frozen(eq=False)
class LoweredInfo(LambdaInfo):
    """The description of a procedure that asks containers for their labels: it gets its arguments as they are."""


@slotted(eq=False)
class Const(Node):
    """A constant. For a function of the language as a value, ``row`` is its row; for a method the type, its name, and its notation."""

    value: Any
    row: Any = None


@slotted(eq=False)
class Env(Node):
    """The environment that the program is linked to."""


@slotted(eq=False)
class Ref(Node):
    """The value of a local variable, or of one of the environment by name. ``hint`` is for an unbound one, or ``near``: the names that it
    may be meant for."""

    variable: Variable | str
    hint: str | None = None
    near: tuple[str, ...] = ()


@slotted(eq=False)
class Set(Node):
    """Gives a variable a value, which is also the value of the node.

    ``how``: ``bind`` assigns as Python does, or initialises; ``set`` and ``define`` are those of S-expressions.
    """

    variable: Variable | str
    value: Node
    how: Literal["bind", "set", "define"] = "bind"
    direct: bool = False


@slotted(eq=False)
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


@slotted(eq=False)
class Call(Node):
    """A procedure value, called; ``names`` are the keywords of the last arguments.

    ``picks_first``: whether it can be called so is decided before the arguments are evaluated. ``callee`` is the number of the only
    :class:`Lambda` that the text gives the operator, and ``order`` the argument for each of its parameters, by position; None for one left out.
    """

    function: Node
    args: list[Node]
    names: tuple[str, ...] = ()
    is_tail: bool = False
    picks_first: bool = False
    callee: int | None = None
    order: tuple[int | None, ...] = ()


@slotted(eq=False)
class Either(Node):
    """``(f (name value) ...)``: a call with named arguments if ``f`` takes names, else of ``f`` with the results of other calls.

    ``links`` are the operators between ``f`` and each name in ``(f (g (name value)))``.
    """

    function: Node
    pairs: list[EitherPair]
    is_tail: bool = False


@slotted(eq=False)
class EitherPair(Node):
    """An operand of :class:`Either`: ``applied`` is ``name`` called with ``value``, which ``variable`` then holds."""

    names: list[str]
    links: list[EitherLink]
    variable: Variable
    value: Node
    applied: Node


@slotted(eq=False)
class EitherLink(Node):
    """An operator of a pair that is not yet known to take names; ``effect`` is the effect that it certainly makes."""

    function: Node
    effect: NamedEffect | None = None


_EFFECTS: dict[str, Callable[[Any, str, dict[str, Any]], Any]] = {
    "task": lambda env, name, arguments: effects.TaskCall(name, arguments, env),
    "tool": lambda env, name, arguments: effects.CallTool(name, arguments, env),
    "workflow": lambda env, name, arguments: effects.CallWorkflow(name, arguments, env),
    "context": lambda env, name, arguments: effects.GetContext(arguments),
    "items": lambda env, name, arguments: effects.GetContext(arguments, True),
}


@frozen
class NamedEffect:
    """An effect with named arguments; its kind is that of :class:`~agentflow.lang.ir.EffectCall`."""

    kind: str
    name: str
    names: tuple[str, ...]

    def __call__(self, env: Any, *values: Any) -> Any:
        """The effect with these values of its arguments."""
        return _EFFECTS[self.kind](env, self.name, dict(zip(self.names, values, strict=True)))

    def of(self, env: Any, name: str, value: Any) -> Any:
        """The effect with one argument."""
        return _EFFECTS[self.kind](env, self.name, {name: value})


@slotted(eq=False)
class Perform(Node):
    """An effect that ``make`` builds of the environment and the values."""

    make: Callable[..., Any]
    args: list[Node]


@slotted(eq=False)
class Op(Node):
    """An operation of the runtime; ``constants`` are its first arguments."""

    operation: Operation
    constants: list[Any]
    args: list[Node]


@slotted(eq=False)
class Lambda(Node):
    """A procedure. ``defaults``: for each parameter None (required), :data:`MISSING_KEYWORD`, or the node of its default.

    ``gives_body``: its value is the body's; otherwise that of a ``return``. ``number``: by which calls mean it. ``is_global``: the only value
    of a variable of the environment. ``is_small`` and calls itself: its code may be there twice.
    """

    info: LambdaInfo
    params: list[Variable]
    defaults: list[Any]
    frame: FrameLayout
    body: Node
    rest: Variable | None = None
    gives_body: bool = False
    by_position: int = 0
    number: int | None = None
    is_global: bool = False
    is_small: bool = False


MISSING_KEYWORD = object()
"""In place of a default: the keyword is required."""


@slotted(eq=False)
class Thunk(Node):
    """A part of the program as code that the runtime runs. ``steps``: running it takes a step."""

    body: Node
    frame: FrameLayout | None = None
    steps: bool = False


@slotted(eq=False)
class If(Node):
    """A choice: the arm of the first of the ``clauses``, each a test and an arm, with a test that is true; else ``other``."""

    clauses: list[tuple[Node, Node]]
    other: Node


@slotted(eq=False)
class Logic(Node):
    """``and`` (``every``) or ``or``."""

    every: bool
    items: list[Node]


@slotted(eq=False)
class Seq(Node):
    """Nodes one after the other, with the value of the last. ``frame``: variables that are new each time.

    ``variables`` are those of a scope that get their values in it.
    """

    items: list[Node]
    frame: FrameLayout | None = None
    variables: Sequence[Variable] = ()


@slotted(eq=False)
class While(Node):
    """Rounds of ``body`` as long as ``test`` is ``sense``. ``steps_first``: the step of a round is taken before its test."""

    test: Node
    body: Node
    other: Node | None = None
    sense: bool = True
    steps_first: bool = False


@slotted(eq=False)
class For(Node):
    """A round of ``body`` for each element of ``over``, which ``item`` gets.

    ``counts``: its rounds are numbers, which are reported, and its value is that of the last (without one, an empty list).
    """

    over: Node
    item: Variable | str | None
    body: Node
    other: Node | None = None
    counts: bool = False


@slotted(eq=False)
class NamedLet(Node):
    """A named let with calls that are all its next rounds. ``frame``: its variables are new in each; ``name`` is None if no text names it."""

    params: list[Variable]
    inits: list[Node]
    body: Node
    frame: FrameLayout | None
    name: str | None = None


@slotted(eq=False)
class Again(Node):
    """The next round of a :class:`NamedLet`."""

    loop: NamedLet
    args: list[Node]


@slotted(eq=False)
class Try(Node):
    """``handlers``: (names of classes, or None for each; variable; body)."""

    body: Node
    handlers: list[tuple[tuple[str, ...] | None, Variable | str | None, Node]]
    other: Node | None = None
    final: Thunk | None = None
