"""Programs: text made ready to run."""

from __future__ import annotations

import ast
import linecache
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, Literal, cast

from agentflow.core.errors import AgentflowError, SexpEvaluationError
from agentflow.core.limits import Limits
from agentflow.core.source import Source
from agentflow.lang import emit_calls, emit_control, emit_values
from agentflow.lang.abi import Code
from agentflow.lang.analyzer import Analyzer, Kind
from agentflow.lang.calling import NOTHING
from agentflow.lang.codegen import RETURN, Generator
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.forms import FORMS
from agentflow.lang.reader import read
from agentflow.lang.stack import collector_paused, on_fresh_stack
from agentflow.lang.syntax import Form, Node
from agentflow.lang.trace import CodeInfo, stamp

KindOf = Callable[[str], Literal["variable", "task", "tool", "unknown"] | None]

EMITTERS = (emit_calls, emit_control, emit_values)
"""The modules whose functions write code for the nodes of a program; importing them is what declares them."""
_SHALLOW = 30


class Program:
    """A compiled program: immutable, and usable in any environment whose free names are of the same kinds.

    Attributes: ``source`` the text with its name; ``text``; ``free`` the free names and what each was (variable, task,
    tool, unknown); ``allow`` the names it was limited to. Serialises as its text.
    """

    __slots__ = ("__weakref__", "_cells", "_constants", "_link", "allow", "filename", "free", "limits", "source")

    def __init__(
        self,
        source: Source,
        filename: str,
        link: Callable[..., Code],
        constants: tuple[Any, ...],
        cells: tuple[tuple[str, bool], ...],
        free: dict[str, Kind],
        allow: frozenset[str] | None,
        limits: Limits,
    ) -> None:
        self.source = source
        self.filename = filename
        self._link = link
        self._constants = constants
        self._cells = cells
        self.free = free
        self.allow = allow
        self.limits = limits

    @property
    def text(self) -> str:
        """The program text."""
        return self.source.text

    @property
    def name(self) -> str:
        """The display name of the text."""
        return self.source.name

    def link(self, env: SexpEnvironment) -> Code:
        """The program as a coroutine function ``(rt, d)`` on the variables of ``env``."""
        cells = [env.own(name) if own else env.find(name) or env.own(name) for name, own in self._cells]
        return self._link(env, *self._constants, *cells)

    def fits(self, kinds: KindOf) -> bool:
        """Whether the free names are what they were when this was compiled."""
        return all((kinds(name) or "unknown") == kind for name, kind in self.free.items())

    def __repr__(self) -> str:
        return f"#<program {self.source.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.source.name, self.source.text, self.free, self.allow, self.limits)


def _restore(name: str, text: str, free: dict[str, Kind], allow: frozenset[str] | None, limits: Limits) -> Program:
    return compile_program(Source(name, text), kinds=lambda each: free.get(each, "unknown"), limits=limits, allow=allow)


class ProgramCache:
    """The programs compiled lately, by content and by the kinds of their free names. At most ``size`` of them."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._programs: OrderedDict[tuple[Any, ...], list[Program]] = OrderedDict()

    def find(self, key: tuple[Any, ...], kinds: KindOf) -> Program | None:
        """A program of this key whose free names are of the kinds they were."""
        for program in self._programs.get(key, ()):
            if program.fits(kinds):
                self._programs.move_to_end(key)
                return program
        return None

    def add(self, key: tuple[Any, ...], program: Program) -> None:
        """Keep a program; the least lately used ones go."""
        self._programs.setdefault(key, []).insert(0, program)
        del self._programs[key][4:]
        while len(self._programs) > self._size:
            self._programs.popitem(last=False)


def compile_program(
    source: Source | str,
    *,
    kinds: KindOf | None = None,
    limits: Limits | None = None,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
    cache: ProgramCache | None = None,
) -> Program:
    """Read, check and compile a program.

    ``kinds`` says what a free name is: "variable", "task", "tool", or None when it is unknown; ``env_names`` are names
    that are variables. With ``allow``, a task or tool that it does not name is an error. ``cache`` keeps the result.
    Raises SexpSyntaxError, SexpEvaluationError (the first of several: ``error.others`` holds the rest) and LimitExceeded.
    """
    source = as_source(source)
    limits = limits or Limits()
    granted = frozenset(allow) if allow is not None else None
    known = frozenset(env_names)
    of = _kinds(kinds, known)
    key = (source.name, source.digest, granted, limits.source_bytes, limits.nesting, limits.nodes)
    if cache is not None:
        found = cache.find(key, of)
        if found is not None:
            return found
    with collector_paused():
        program = _compile(source, read(source, limits=limits), of, limits, granted)
    if cache is not None:
        cache.add(key, program)
    return program


def check_program(
    source: Source | str,
    *,
    kinds: KindOf | None = None,
    limits: Limits | None = None,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
) -> list[AgentflowError]:
    """All that is wrong with a program text, in order; an empty list when nothing is. Nothing is run."""
    try:
        compile_program(source, kinds=kinds, limits=limits, allow=allow, env_names=env_names)
    except AgentflowError as error:
        others = cast("list[AgentflowError]", getattr(error, "others", []))
        return [error, *others]
    return []


def as_source(source: Source | str) -> Source:
    """Text as a Source."""
    return Source("<string>", source) if isinstance(source, str) else source


def _kinds(kinds: KindOf | None, known: frozenset[str]) -> Callable[[str], Kind]:
    def of(name: str) -> Kind:
        if name in known:
            return "variable"
        return (kinds(name) if kinds is not None else None) or "unknown"

    return of


def _compile(
    source: Source, forms: list[Node], kinds: Callable[[str], Kind], limits: Limits, allow: frozenset[str] | None
) -> Program:
    program = assemble(source, forms, kinds, limits, allow)
    _show_lines(program)
    return program


def assemble(
    source: Source,
    forms: list[Node],
    kinds: Callable[[str], Kind],
    limits: Limits,
    allow: frozenset[str] | None,
    macros: dict[str, Any] | None = None,
) -> Program:
    """The program of forms that were read before; ``macros`` are in force already."""
    analyzer = Analyzer(source, kinds, limits, allow, forms=FORMS, compile_template=_compile_template)
    analyzer.macros.update(macros or {})
    tree = analyzer.program(forms)
    if analyzer.errors:
        errors = sorted(analyzer.errors, key=lambda each: each.span.start if each.span is not None else 0)
        first = errors[0]
        first.others = errors[1:]  # type: ignore[attr-defined]
        raise first
    generator = Generator(source, set(analyzer.globals_defined))
    generator.global_code = {
        name: lam
        for name, lam in analyzer.global_lambdas.items()
        if analyzer.globals_defined.get(name) == 1 and name in analyzer.global_calls
    }
    module = _module(generator, tree, forms[0])
    filename = f"<agentflow {source.digest[:12]}>/{source.name}"
    compiled = _compile_module(module, filename, deep=max(analyzer.deepest, generator.deepest) > _SHALLOW)
    cells = {py: name for name, py in generator.cells.items()}
    code = stamp(compiled, CodeInfo(generator.positions, generator.names, cells, generator.lambdas))
    space: dict[str, Any] = {"__builtins__": {}}
    exec(code, space)
    return Program(
        source,
        filename,
        cast("Callable[..., Code]", space["link"]),
        tuple(value for _, value in generator.constants),
        tuple((name, name in analyzer.globals_defined) for name in generator.cells),
        analyzer.asked,
        allow,
        limits,
    )


def _compile_template(analyzer: Analyzer, procedure: Form) -> Code:
    """The code of a macro's template, which sees the macros before it and nothing of the program."""
    program = assemble(
        analyzer.source, [procedure], lambda _: "unknown", analyzer.limits, frozenset(), macros=analyzer.macros
    )
    return program.link(SexpEnvironment())


def _compile_module(module: ast.Module, filename: str, *, deep: bool) -> CodeType:
    """Python's own compiler recurses over the tree: a deep one gets a stack of its own."""

    def work() -> CodeType:
        return compile(module, filename, "exec", dont_inherit=True)

    return on_fresh_stack(work) if deep else work()


def _module(g: Generator, tree: Any, first: Node) -> ast.Module:
    g.loc = g.place(first)
    fn = g.fn

    def build() -> None:
        g.stmt(tree, RETURN)
        body, g.body = g.body, []
        for name in g.global_py.values():
            g.assign(name[1], g.const_param(NOTHING, "NOTHING"))
        g.body.extend(body)

    main = g.function("main", [], None, fn, build, prologue=False)
    g.constants.append(("K", tuple(g.packed)))
    params = ["E", *(name for name, _ in g.constants), *g.cells.values()]
    args = ast.arguments([], [ast.copy_location(ast.arg(each), main) for each in params], None, [], [], None, [])
    body: list[ast.stmt] = [main, ast.Return(g.name("main"), **g.loc)]
    link = ast.FunctionDef("link", args, body, [])
    ast.copy_location(link, main)
    link.type_params = []  # type: ignore[attr-defined]
    return ast.Module([link], [])


def _show_lines(program: Program) -> None:
    """Let tracebacks, debuggers and profilers show the program's own lines, for as long as the program lives."""
    filename = program.filename
    text = program.source.text
    lines = text.splitlines(keepends=True)
    linecache.cache[filename] = (len(text), None, lines, filename)
    weakref.finalize(program, _forget_lines, filename, lines)


def _forget_lines(filename: str, lines: list[str]) -> None:
    entry = linecache.cache.get(filename)
    if entry is not None and len(entry) > 2 and entry[2] is lines:
        linecache.cache.pop(filename, None)


__all__ = ["Program", "ProgramCache", "SexpEvaluationError", "check_program", "compile_program"]
