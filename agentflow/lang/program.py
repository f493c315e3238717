"""Programs: text made ready to run."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import UNKNOWN, VARIABLE, NameInfo, Names
from agentflow.core.data.labels import Following
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Surface
from agentflow.lang.abi import Code, LinkableCode
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.analyzer import Analyzer, Describe
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.forms import FORMS
from agentflow.lang.ir import Seq
from agentflow.lang.kernel.linking import compiled
from agentflow.lang.reader import read
from agentflow.lang.syntax import Form, Node
from agentflow.lang.trace import show_lines
from agentflow.lib.text.stack import collector_paused

A = TypeVar("A", bound=Analyzer)
Pass = Callable[[Source, Any], object]
"""Looks at a program, or changes it, before code is written for it: of S-expressions the analysed
:class:`~agentflow.lang.ir.Seq`, of Python the writer of its code, the :class:`~agentflow.lang.python.lowering.Lowering`."""
"""Called with an analysed program before code is written for it; may change it in place."""
_PYTHON = "agentflow.lang.python.compiling"
_TEXT = "<string>"
"""The name of a program given as text."""

if TYPE_CHECKING:
    from agentflow.lang.bounds.analysis import Analysis


class Program:
    """A compiled program: immutable, and usable in any environment with the same free names.

    Attributes: ``source`` the text with its name; ``text``; ``free`` the free names with their meanings: the kind, and the
    parameters of a call; ``own`` the names under which it defines tasks; ``allow`` the names it was limited to;
    ``labelled`` whether its values may be in boxes with their sources; ``doubts`` are suspicious parts, reported when it
    runs. Serialises as its text.
    """

    __slots__ = (
        "__weakref__",
        "_code",
        "allow",
        "doubts",
        "filename",
        "fitted",
        "free",
        "labelled",
        "limits",
        "own",
        "source",
    )

    def __init__(
        self,
        source: Source,
        filename: str,
        code: LinkableCode,
        free: Mapping[str, NameInfo],
        own: frozenset[str],
        allow: frozenset[str] | None,
        limits: Limits,
        *,
        labelled: Following = False,
        doubts: Sequence[AgentflowError] = (),
    ) -> None:
        self.source = source
        self.doubts = doubts
        self.labelled: Following = labelled
        self.filename = filename
        self._code = code
        self.fitted: object = None
        self.free = free
        self.own = own
        self.allow = allow
        self.limits = limits

    @property
    def text(self) -> str:
        """The program text."""
        return self.source.text

    @property
    def surface(self) -> Surface:
        """The language of the text."""
        return self.source.surface

    @property
    def name(self) -> str:
        """The display name of the text."""
        return self.source.name

    def link(self, env: SexpEnvironment) -> Code:
        """The program as a coroutine function ``(rt, d)`` on the variables of ``env``."""
        return self._code.link(env, *env.linked(self._code.cells))

    def bounds(self, bindings: Mapping[str, Any] | None = None) -> Analysis:
        """The most effects that the program may have, by ``task:NAME`` and ``tool:NAME``, and the parts without a bound.

        ``bindings`` are values of its variables; the sizes of its other variables are named after them. A program does not
        know the cost of its tasks: see ``flow.bounds``.
        """
        from agentflow.lang.bounds.interpret import AnalysisInputs
        from agentflow.lang.bounds.ready import python_readied, sexp_readied

        def describe(name: str) -> NameInfo:
            return VARIABLE if name in variables else self.free.get(name, UNKNOWN)

        variables = {*(bindings or {}), *[name for name, info in self.free.items() if info.kind == "variable"]}
        bindings = bindings or {}
        inputs = AnalysisInputs(lambda kind, name, own: {}, bindings, variables - bindings.keys())
        if self.source.surface == "python":
            return python_readied(self.source, describe, self.limits, self.allow, None).follow(inputs)
        with collector_paused():
            forms = read(self.source, limits=self.limits)
            analyzer, tree = analysis_of(self.source, forms, describe, self.limits, self.allow)
        return sexp_readied(analyzer, tree).follow(inputs)

    def fits(self, describe: Describe, revision: object = None) -> bool:
        """Whether the free names have the same kinds and parameters as when this was compiled.

        A name under which the program itself defines a task only must not have become a variable. ``revision`` is equal as
        long as every name means the same, None if unknown: names are compared once for each.
        """
        if revision is not None and revision == self.fitted:
            return True
        for name, info in self.free.items():
            now = describe(name)
            own = name in self.own and now.kind != "variable" and info.kind != "variable"
            if not (now is info or own or now == info):
                return False
        self.fitted = revision
        return True

    def __repr__(self) -> str:
        return f"#<program {self.source.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (
            self.source.name,
            self.source.text,
            dict(self.free),
            self.allow,
            self.limits,
            self.source.surface,
        )


def _restore(
    name: str,
    text: str,
    free: Mapping[str, NameInfo],
    allow: frozenset[str] | None,
    limits: Limits,
    surface: Surface = "sexp",
) -> Program:
    source = Source(name, text, surface)
    if surface == "python":
        return _python(source, lambda each: free.get(each, UNKNOWN), limits, allow, None)
    with collector_paused():
        return _compile(source, read(source, limits=limits), lambda each: free.get(each, UNKNOWN), limits, allow, None)


class ProgramCache:
    """The programs compiled recently, by content and by the meanings of their free names. At most ``size`` of them."""

    def __init__(self, size: int = 256) -> None:
        self._size = size
        self._lock = threading.Lock()  # programs are compiled on threads
        self._programs: OrderedDict[tuple[Any, ...], list[Program]] = OrderedDict()

    def find(self, key: tuple[Any, ...], describe: Describe, revision: object = None) -> Program | None:
        """A program of this key with unchanged meanings of its free names; see :meth:`Program.fits`."""
        with self._lock:
            for program in self._programs.get(key, ()):
                if program.fits(describe, revision):
                    self._programs.move_to_end(key)
                    return program
        return None

    def current(
        self,
        program: Program | Source | str,
        allow: frozenset[str] | None,
        limits: Limits,
        revision: object,
        *,
        labelled: Following = False,
    ) -> Program | None:
        """``program`` itself, or the cached one, if it is known to fit at ``revision``: without comparing its names."""
        if isinstance(program, Program):
            same = program.allow == allow and (program.limits is limits or program.limits == limits)
            return program if same and program.labelled == labelled and program.fitted == revision else None
        text = program if isinstance(program, str) else program.text
        name = _TEXT if isinstance(program, str) else program.name
        surface = "sexp" if isinstance(program, str) else program.surface
        with self._lock:
            for each in self._programs.get(_key(name, text, surface, allow, limits, labelled), ()):
                if each.fitted == revision:
                    return each
        return None

    def add(self, key: tuple[Any, ...], program: Program) -> None:
        """Keep a program, and drop the least recently used ones."""
        with self._lock:
            self._programs.setdefault(key, []).insert(0, program)
            del self._programs[key][4:]
            while len(self._programs) > self._size:
                self._programs.popitem(last=False)


def compile_program(
    source: Source | str,
    *,
    names: Names | None = None,
    limits: Limits | None = None,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
    cache: ProgramCache | None = None,
    revision: object = None,
    allowance: StepAllowance | None = None,
    passes: Sequence[Pass] = (),
    labelled: Following = False,
) -> Program:
    """Read, check and compile a program.

    ``names`` returns the meaning of a free name (None: unknown), and makes the templates of the tasks that the
    program defines; ``env_names`` are names of variables. With ``allow``, a task or tool that it does not name is an error,
    and so is code that will certainly fail at run time. ``cache`` keeps the result; ``revision`` spares comparing its
    names again, see :meth:`Program.fits`. ``allowance`` bounds its macros (None: by ``limits.steps``). ``passes`` change
    the program before code is written for it; then it is not for ``cache``. ``labelled``: its values may be in boxes;
    "strict": conditions are tracked too. Raises SexpSyntaxError, SexpEvaluationError (the first of several:
    ``error.others`` holds the rest) and LimitExceeded.
    """
    source = as_source(source)
    limits = limits or Limits()
    granted = frozenset(allow) if allow is not None else None
    describe = describer(names, frozenset(env_names))
    key = _key(source.name, source.text, source.surface, granted, limits, labelled)
    if cache is not None:
        cached = cache.find(key, describe, revision)
        if cached is not None:
            return cached
    if source.surface == "python":
        program = _python(source, describe, limits, granted, names, passes, labelled=labelled)
    else:
        with collector_paused():
            program = _compile(
                source,
                read(source, limits=limits),
                describe,
                limits,
                granted,
                names,
                strict=granted is not None,
                allowance=allowance,
                passes=passes,
                labelled=labelled,
            )
    if cache is not None:
        cache.add(key, program)
    return program


def compiled_before(
    source: Source | str,
    *,
    names: Names | None = None,
    limits: Limits,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
    cache: ProgramCache,
    revision: object = None,
    labelled: Following = False,
) -> Program | None:
    """The entry of ``cache`` for these arguments of :func:`compile_program`."""
    source = as_source(source)
    granted = frozenset(allow) if allow is not None else None
    key = _key(source.name, source.text, source.surface, granted, limits, labelled)
    return cache.find(key, describer(names, frozenset(env_names)), revision)


def _key(
    name: str, text: str, surface: Surface, granted: frozenset[str] | None, limits: Limits, labelled: Following
) -> tuple[Any, ...]:
    """The differences between programs in a cache, other than their free names."""
    return (name, text, surface, granted, limits.source_bytes, limits.nesting, limits.nodes, labelled)


def start_of(error: AgentflowError) -> int:
    """The position of an error in the text, for sorting."""
    return error.span.start if error.span is not None else 0


def describer(names: Names | None, variables: frozenset[str] = frozenset()) -> Describe:
    """The meaning of each free name: a variable, the answer of ``names``, or unknown."""

    def describe(name: str) -> NameInfo:
        if name in variables:
            return VARIABLE
        info = names.describe(name) if names is not None else None
        return UNKNOWN if info is None else info

    return describe


def as_source(source: Source | str) -> Source:
    """Text as a Source."""
    return Source(_TEXT, source) if isinstance(source, str) else source


def _compile(
    source: Source,
    forms: list[Node],
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    port: Names | None,
    *,
    strict: bool = False,
    allowance: StepAllowance | None = None,
    passes: Sequence[Pass] = (),
    labelled: Following = False,
) -> Program:
    program = assemble(
        source,
        forms,
        describe,
        limits,
        allow,
        port=port,
        strict=strict,
        allowance=allowance,
        passes=passes,
        labelled=labelled,
    )
    show_lines(program, filename=program.filename, text=program.text)
    return program


def assemble(
    source: Source,
    forms: list[Node],
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    macros: dict[str, Any] | None = None,
    port: Names | None = None,
    *,
    strict: bool = False,
    allowance: StepAllowance | None = None,
    passes: Sequence[Pass] = (),
    labelled: Following = False,
) -> Program:
    """The program of forms read before; ``macros`` are in force already.

    ``strict`` refuses code that will certainly fail, not only malformed code.
    """
    analyzer, tree = analysis_of(source, forms, describe, limits, allow, macros, port, allowance)
    wrong = list(analyzer.errors)
    if strict:
        from agentflow.lang.checks import certain_failures  # programs that the host writes are not refused for these

        wrong += [each.error for each in certain_failures(analyzer, tree, closed=True) if not each.caught]
    if wrong:
        errors = sorted(wrong, key=start_of)
        first = errors[0]
        first.others = errors[1:]  # type: ignore[attr-defined]
        raise first
    for change in passes:
        change(source, tree)
    filename = _filename(source)
    code = compiled(analyzer, tree, filename, labelled=labelled)
    own, doubts = frozenset(analyzer.own), analyzer.doubts
    return Program(source, filename, code, analyzer.asked, own, allow, limits, labelled=labelled, doubts=doubts)


def _python(
    source: Source,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    port: Names | None,
    passes: Sequence[Pass] = (),
    *,
    labelled: Following = False,
) -> Program:
    """The program of a text in Python."""
    from agentflow.lang.python.compiling import compile_python  # Most processes never see such a text.

    filename = _filename(source)
    with collector_paused():
        code, g = compile_python(source, filename, describe, limits, allow, port, passes, labelled=labelled)
    own = frozenset(g.own_tasks)
    program = Program(source, filename, code, g.asked, own, allow, limits, labelled=labelled, doubts=g.doubts)
    show_lines(program, filename=filename, text=program.text)
    return program


def python_is_loaded() -> bool:
    """Whether the compiler of texts in Python has been imported, which takes some 50 ms the first time."""
    return hasattr(sys.modules.get(_PYTHON), "compile_python")


def not_sexp(source: Source) -> AgentflowError:
    """The error for a Python text in a place that only reads S-expressions so far."""
    return AgentflowError(
        "this operation works only on S-expressions, and this is a Python text",
        code="program/surface",
        span=source.span(0, 1),
        hint="run, check, explore and bounds take Python texts",
    )


def _filename(source: Source) -> str:
    return f"<agentflow {source.digest[:12]}>/{source.name}"


def analysis_of(
    source: Source,
    forms: list[Node],
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    macros: dict[str, Any] | None = None,
    port: Names | None = None,
    allowance: StepAllowance | None = None,
) -> tuple[Analyzer, Seq]:
    """Forms that were read, analysed; parameters as for :func:`assemble`. Errors are collected in the analyzer."""
    analyzer = new_analyzer(Analyzer, source, describe, limits, allow, port, allowance)
    analyzer.macros.update(macros or {})
    return analyzer, analyzer.program(forms)


def new_analyzer(
    kind: type[A],
    source: Source,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    port: Names | None,
    allowance: StepAllowance | None = None,
) -> A:
    """An analyzer of this kind, for one program or a part of one."""
    return kind(
        source,
        describe,
        limits,
        allow,
        port,
        forms=FORMS,
        compile_template=_compile_template,
        allowance=StepAllowance(limits.steps) if allowance is None else allowance,
    )


def _compile_template(analyzer: Analyzer, procedure: Form) -> Code:
    """The code of a macro's template, which sees the macros before it and nothing of the program."""
    program = assemble(
        analyzer.source,
        [procedure],
        lambda _: UNKNOWN,
        analyzer.limits,
        frozenset(),
        macros=analyzer.macros,
        allowance=analyzer.allowance,
    )
    return program.link(SexpEnvironment())
