"""Scopes and variables of a program under analysis: the bindings of names, the meanings of free names, captures and
changes.

The caller's ``describe`` function returns the meaning of a free name; the names it was asked about, and its answers, are
part of a program's identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.known_names import DEFINE, NameInfo, NameKind
from agentflow.core.data.source import Source, Span
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.ir import IR, Function, Lambda, Var
from agentflow.lang.syntax import Form, Name, Node, head_name
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.suggest import did_you_mean

Describe: TypeAlias = Callable[[str], NameInfo]
"""Returns the meaning of a free name where the program will run."""

_UNSAFE = late_pattern(r"[^A-Za-z0-9_]")
MAX_ERRORS = 50
"""Mistakes after which an analysis gives up."""


class Scope:
    """Names in force: ``names`` here, the rest in ``parent``. A ``body`` scope is where ``define`` binds."""

    __slots__ = ("body", "function", "names", "parent", "vars")

    def __init__(self, parent: Scope | None, function: Function, *, body: bool = False) -> None:
        self.parent = parent
        self.function = function
        self.names: dict[str, Var] = {}
        self.body = body
        self.vars: list[Var] = []

    def find(self, name: str) -> Var | None:
        """The variable called ``name``, or None when it is not lexical."""
        at: Scope | None = self
        while at is not None:
            var = at.names.get(name)
            if var is not None:
                return var
            at = at.parent
        return None

    def nearest(self) -> tuple[str, ...]:
        """The names of at most 100 lexical variables, the innermost first: an unbound name is compared with them."""
        at, names = self, list[str]()
        while at is not None and len(names) < 100:
            names += at.names
            at = at.parent
        return tuple(names[:100])

    def body_scope(self) -> Scope | None:
        """The scope that a ``define`` here binds in; None at top level."""
        at: Scope | None = self
        while at is not None and not at.body:
            at = at.parent
        return at


class OpensScope(Protocol):
    """A special form, as far as names are concerned: whether a ``define`` inside it does not bind outside."""

    @property
    def scoping(self) -> bool: ...


class Naming:
    """The names of one program, a base class of the :class:`~agentflow.lang.analyzer.Analyzer`.

    ``errors`` collects mistakes; ``asked`` are the free names with their meanings; ``own`` the names under which the
    program defines tasks; ``allow`` the names it may call (None: all). ``scoped_forms`` are the special forms.
    """

    def __init__(
        self, source: Source, describe: Describe, allow: frozenset[str] | None, scoped_forms: Mapping[str, OpensScope]
    ) -> None:
        self.source = source
        self.describe = describe
        self.allow = allow
        self.scoped_forms = scoped_forms
        self.errors: list[AgentflowError] = []
        self.asked: dict[str, NameInfo] = {}
        self.globals_defined: dict[str, int] = {}
        self.global_lambdas: dict[str, Lambda] = {}
        self.global_calls: set[str] = set()
        self.own: set[str] = set()
        self.own_infos: dict[str, list[NameInfo]] = {}
        self.fresh_names = 0
        self.vars: list[Var] = []
        self.main = Function("main", None)

    # -- errors -------------------------------------------------------------------------------------------------------

    def span(self, node: Node) -> Span:
        """The span of ``node``."""
        return Span(self.source, node.start, node.end)

    def error(self, node: Node, code: str, message: str, hint: str | None = None) -> SexpEvaluationError:
        """An error at ``node``, to be raised."""
        return SexpEvaluationError(message, code=code, span=self.span(node), hint=hint)

    def collect(self, error: AgentflowError) -> None:
        """Record an error and continue; past fifty, give up."""
        self.errors.append(error)
        if len(self.errors) > MAX_ERRORS:
            raise TooManyErrors

    def shared_set(self, node: Node, name: str) -> SexpEvaluationError:
        """The error of a ``set!`` on a variable that another branch may be reading."""
        return self.error(
            node,
            "concurrency/shared-set",
            f"set!: '{name}' belongs to the code around this branch, which runs at the same time",
            "return the value from the branch and combine the results after the join",
        )

    # -- variables ----------------------------------------------------------------------------------------------------

    def var(self, name: str, scope: Scope, at: Node | None = None, within: Node | None = None) -> Var:
        """A new variable of ``scope``, with a Python name unique in the program.

        For listings of names: ``at`` is the name in the text (None: it is in none, or a definition will say), ``within``
        the syntax it is in force in, if smaller than the form around it.
        """
        py = f"{_UNSAFE.sub('_', name)[:40]}_{len(self.vars)}"
        if py[0].isdigit():
            py = "_" + py
        var = Var(name, py, scope.function)
        self.vars.append(var)
        scope.names[name] = var
        return var

    def fresh_name(self, stem: str) -> str:
        """A name for a macro's expansion, used nowhere in the program, nor in the expansions of another."""
        while True:
            self.fresh_names += 1
            name = f"{stem}%{self.source.digest[:8]}.{self.fresh_names}"
            if name not in self.source.text:
                return name

    def scan_defines(self, forms: Sequence[Node], scope: Scope) -> list[str]:
        """The names that ``define`` and ``bind`` bind in these forms, wherever no scope of their own encloses them."""
        names: list[str] = []
        pending = list(reversed(forms))
        while pending:
            at = pending.pop()
            if type(at) is not Form or not at.items:
                continue
            head = head_name(at)
            if head is not None and scope.find(head) is None:
                if head in ("define", "bind") and len(at.items) > 1:
                    target = at.items[1]
                    if type(target) is Form and target.items:
                        target = target.items[0]
                        if type(target) is Name:
                            names.append(target.name)
                        continue
                    if type(target) is Name:
                        names.append(target.name)
                    pending.extend(reversed(at.items[2:]))
                    continue
                form = self.scoped_forms.get(head)
                if form is not None and form.scoping:
                    continue
            pending.extend(reversed(at.items))
        return names

    def read(self, var: Var, scope: Scope) -> None:
        """Note that code in ``scope`` reads ``var``."""
        if scope.function is not var.function:
            var.readers.add(scope.function)
        if not var.defined and not any(k != "thunk" for k in scope.function.path_to(var.function)):
            var.early = True

    def finish(self) -> None:
        """Determine captures, mutations and escapes, after the real functions are known."""
        for var in self.vars:
            if var.value is not None and not all(map(var.value.takes, var.counts)):
                var.escapes = True  # Such a call takes the closure: not the code directly.
            for function in var.readers:
                if any(kind != "thunk" for kind in function.path_to(var.function)):
                    var.captured = True
            for function, write in var.writers:
                path = function.path_to(var.function)
                if "lambda" not in path and "branch" in path:
                    self.collect(self.shared_set(write.at, var.name))
                if any(kind != "thunk" for kind in path):
                    var.captured = var.shared = write.foreign = True

    # -- free names ---------------------------------------------------------------------------------------------------

    def kind(self, name: str) -> NameKind:
        """The meaning of the free name ``name``, environment first; primitives are ``unknown`` here."""
        if name in self.globals_defined:
            return "variable"
        info = self.asked.get(name)
        if info is None:
            info = self.asked[name] = self.describe(name)
        if name in self.own and info.kind != "variable":
            return "task"
        return info.kind

    @property
    def may_define(self) -> bool:
        """Whether this program may define tasks; those it defines need no grant of their own."""
        return self.allow is None or DEFINE in self.allow

    def granted(self, name: str, node: Node, aliases: tuple[str, ...] = ()) -> None:
        """Refuse a task or tool that this program was not granted."""
        if self.allow is not None and name not in self.allow and not self.allow.intersection(aliases):
            granted = ", ".join(sorted(self.allow)[:20]) or "none"
            raise self.error(
                node,
                "name/not-granted",
                f"'{name}' is not granted to this program",
                f"the names it may call: {granted}",
            )

    def refuse_unknown(self, name: str, node: Node) -> None:
        """With ``allow`` in force nothing can appear later: an unknown operator is an error before anything runs."""
        if self.allow is not None and name not in self.allow:
            hint = did_you_mean(name, [*self.allow, *PRIMITIVES, *self.scoped_forms, *self.globals_defined])
            raise self.error(
                node,
                "name/not-granted",
                f"'{name}' is nothing this program may call",
                hint or f"the names it may call: {', '.join(sorted(self.allow)[:20]) or 'none'}",
            )

    # -- for listings of names: an analysis for compiling ignores these calls --------------------------------------------

    def defined(self, name: Name, node: Node, var: Var | None, value: IR) -> None:
        """``node`` binds ``name`` to ``value``; at file level where ``var`` is None."""

    def defined_task(self, name: Name, node: Form, options: Mapping[str, Form]) -> None:
        """``node`` defines a task by these options."""

    def written(self, name: Name, scope: Scope) -> None:
        """The variable ``name`` is assigned."""

    def mentioned(self, name: Node) -> None:
        """``name`` names a task, tool or workflow that is not called here."""

    def opaque(self, node: Node, name: Name | None = None) -> None:
        """The names in ``node`` are data of a macro, which it defines if ``name`` is given."""


def defined_tasks(forms: Sequence[Node]) -> set[str]:
    """The names defined by ``defatom`` forms anywhere in a program, as far as its text shows."""
    names: set[str] = set()
    pending = list(forms)
    while pending:
        at = pending.pop()
        if type(at) is not Form or not at.items:
            continue
        head = head_name(at)
        if head == DEFINE and len(at.items) > 1 and type(at.items[1]) is Name:
            names.add(at.items[1].name)
        elif head not in ("quote", "quasiquote"):
            pending.extend(at.items)
    return names


class TooManyErrors(Exception):
    """The limit on errors reported at once was reached."""
