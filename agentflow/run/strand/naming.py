"""Resolves at run time the names that compiling left open: variables, and tasks defined by programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import SexpEvaluationError, UnboundSymbolError, cut
from agentflow.core.data.names import Definitions, Names, Template, narrowed, permitted
from agentflow.core.data.values import Symbol, name_of
from agentflow.core.events.effects import Effect
from agentflow.lang.analyzer import EFFECT_NAMES
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.elsewhere import name_hint
from agentflow.lang.environment import UNBOUND, Cell, SexpEnvironment, unbound
from agentflow.lang.forms import FORMS
from agentflow.run.strand.calls import shared_set
from agentflow.run.strand.definitions import NamesInForce, Overlay, view

Publish = Callable[[Template], None]
"""Called with each task that a program has defined in its environment."""


class EffectHandler(Names, Protocol):
    """Carries out effects, and describes the tasks and tools of the flow."""

    async def perform(self, effect: Effect, call: CallContext) -> Any: ...


class Naming:
    """Name resolution for a strand, the only subclass.

    ``grants`` is the authority in force (that of ``call``, narrowed by the procedures being run); ``performer`` describes the
    flow's tasks and tools. ``env`` is the environment of the program, ``overlay`` has the tasks that branches defined and
    have not joined, ``outer`` the definitions around the program; ``publish`` gets the tasks that the program defines.
    ``branch`` says whether other strands may run concurrently, while ``parent`` waits.
    """

    __slots__ = ("branch", "call", "env", "fresh_names", "grants", "outer", "overlay", "parent", "performer", "publish")

    def __init__(
        self,
        call: CallContext,
        performer: EffectHandler,
        parent: Naming | None,
        env: SexpEnvironment | None,
        publish: Publish | None,
        *,
        branch: bool,
    ) -> None:
        self.call = call
        self.grants = call.grants if parent is None else narrowed(parent.grants, call.grants)
        self.performer = performer
        self.parent = parent
        self.branch = branch
        self.fresh_names = 0
        self.publish = publish
        self.env = env
        self.overlay: Overlay | None = None
        self.outer: Definitions | None = call.definitions
        if parent is not None:
            self.env = env or parent.env
            self.overlay = parent.overlay
            self.outer = parent.outer

    def unbound(self, env: SexpEnvironment, name: str) -> Any:
        """The value of a name whose cell is empty: one bound meanwhile further out, or a primitive. Raises UnboundSymbolError."""
        cell = env.find(name)
        if cell is not None:
            return cell.v
        primitive = PRIMITIVES.get(name)
        if primitive is not None:
            return primitive
        kind = self.callable_kind(name, env)
        if kind == "context":
            return Symbol(name)
        if kind is not None:
            raise SexpEvaluationError(
                f"'{name}' is a {kind}, not a variable", code="name/not-value", hint=f"call it: ({name} (param value))"
            )
        raise unbound(name, f"'{name}' is not bound", self._hint(env, name))

    def operator(self, env: SexpEnvironment, name: str) -> Any:
        """Resolve a free operator name at run time. Raises UnboundSymbolError."""
        cell = env.find(name)
        if cell is not None:
            return cell.v
        if name in PRIMITIVES:
            return PRIMITIVES[name]
        if self.callable_kind(name, env) is not None:
            return Symbol(name)
        raise self._no_such_operator(name, env)

    def _no_such_operator(self, name: str, env: SexpEnvironment | None = None) -> UnboundSymbolError:
        if self.grants is not None and self.names(env).describe(name) is not None:
            return unbound(name, f"'{name}' is not granted to this program", "grant it with allow", "name/not-granted")
        return unbound(
            name,
            f"unrecognized operator: '{cut(name, 200)}' is not a variable, special form, primitive, task or tool",
            self._hint(env, name),
            "name/unknown-operator",
        )

    def _hint(self, env: SexpEnvironment | None, name: str) -> str | None:
        names = {*PRIMITIVES, *FORMS, *self.names(env).known_names(), *(env.names() if env is not None else ())}
        return name_hint(name, names)

    def definitions(self, env: SexpEnvironment | None = None) -> Definitions | None:
        """The tasks defined by programs that code written in ``env`` can see; ``env`` None: the strand's own environment."""
        env = env or self.env
        if env is None:
            return self.outer
        return env if self.overlay is None and self.outer is None else view(env, self.overlay, self.outer)

    def names(self, env: SexpEnvironment | None = None) -> NamesInForce:
        """The names other than variables that code written in ``env`` can use."""
        return NamesInForce(self.performer, defined=self.definitions(env))

    def callable_kind(self, name: str, env: SexpEnvironment | None = None) -> Literal["task", "tool", "context"] | None:
        """Whether a call of ``name`` from ``env`` calls a task or, failing that, a tool, or looks up context; None for none of
        these, or if not granted."""
        if name in EFFECT_NAMES:
            return "context"
        grants = self.grants
        defined = self.definitions(env)
        template = defined.task(name) if defined is not None else None
        if template is not None and permitted(template, grants):
            return "task"
        if grants is not None and name not in grants:
            return None
        info = self.performer.describe(name)
        return info.kind if info is not None and (info.kind == "task" or info.kind == "tool") else None

    def define(self, env: SexpEnvironment, template: Template) -> None:
        """Bind a task in ``env``; in a branch, only for the branch until it joins. Warns if it replaces a different task."""
        before = view(env, self.overlay, None).task(template.name)
        if before is not None and before is not template and before.fields != template.fields:
            self.call.warn("task/redefined", f"task '{template.name}' is defined again", name=template.name)
        if self.branch and env.owner is not self:
            if self.overlay is None or self.parent is None or self.overlay is self.parent.overlay:
                self.overlay = Overlay(self.overlay)
            self.overlay.define(env.target, template)
            return
        env.define_task(template)
        if self.publish is not None:
            self.publish(template)

    def fresh_name(self, stem: str) -> str:
        """A unique name that starts with ``stem``, the same in each replay of the run."""
        self.fresh_names += 1
        return f"{stem}%{self.call.path}.{self.fresh_names}"

    def set_global(self, env: SexpEnvironment, cell: Cell, name: str, value: Any) -> None:
        """The slow path of ``set!`` on a variable of the environment. Raises if it is unbound or shared."""
        if self.branch and env.owner is not self:
            raise shared_set(name)
        if cell.v is UNBOUND:
            env.set_value_in_scope(name, value)
        else:
            cell.v = value

    def check_owner(self, owner: Any, name: str) -> None:
        """Refuse ``set!`` on a variable whose owner is waiting for this branch."""
        at = self.parent
        while at is not None:
            if at is owner:
                raise shared_set(name)
            at = at.parent

    def takes_named_arguments(self, function: Any, env: SexpEnvironment | None = None) -> bool:
        """Whether a value in operator position takes named arguments: it names a task or tool.

        Raises SexpEvaluationError for a string or symbol that names nothing.
        """
        name = name_of(function)
        if name is None or name in PRIMITIVES:
            return False
        if self.callable_kind(name, env) is None:
            raise self._no_such_operator(name, env)
        return True
