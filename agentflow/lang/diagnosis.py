"""Analyses and diagnoses a program text without generating code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Names
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.checks import certain_failures
from agentflow.lang.ir import Seq
from agentflow.lang.model_names import called_answers
from agentflow.lang.program import analysis_of, as_source, describer, not_sexp, start_of
from agentflow.lang.reader import read


def check_program(
    source: Source | str,
    *,
    names: Names | None = None,
    limits: Limits | None = None,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
    allowance: StepAllowance | None = None,
) -> list[AgentflowError]:
    """All mistakes in a program text, in order; an empty list without any. Nothing is run.

    Mistakes are malformed forms, and code that will certainly fail at run time.
    """
    diagnosis = diagnose(source, names=names, limits=limits, allow=allow, env_names=env_names, allowance=allowance)
    return [each.error for each in diagnosis if each.severity == "error"]


def analyse(
    source: Source | str,
    *,
    names: Names | None = None,
    limits: Limits | None = None,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
    allowance: StepAllowance | None = None,
) -> tuple[Analyzer, Seq]:
    """The expanded forms of a program text and their analysis, before code generation. Parameters as for :func:`compile_program`.

    Raises SexpSyntaxError, SexpEvaluationError (the first of several) and LimitExceeded.
    """
    analyzer, tree = _read_whole(source, names, limits, allow, env_names, allowance)
    if analyzer.errors:
        raise min(analyzer.errors, key=start_of)
    return analyzer, tree


def _read_whole(
    source: Source | str,
    names: Names | None,
    limits: Limits | None,
    allow: Iterable[str] | None,
    env_names: Iterable[str],
    allowance: StepAllowance | None,
) -> tuple[Analyzer, Seq]:
    source, limits = as_source(source), limits or Limits()
    if source.surface != "sexp":
        raise not_sexp(source)
    granted = frozenset(allow) if allow is not None else None
    describe = describer(names, frozenset(env_names))
    forms = read(source, limits=limits)
    return analysis_of(source, forms, describe, limits, granted, port=names, allowance=allowance)


@frozen
class Diagnostic:
    """A mistake in a program text. A ``warning`` is one that does not make the program fail: it is caught there."""

    error: AgentflowError
    severity: Literal["error", "warning"]


def diagnose(
    source: Source | str,
    *,
    names: Names | None = None,
    limits: Limits | None = None,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
    closed: bool | None = None,
    allowance: StepAllowance | None = None,
) -> list[Diagnostic]:
    """The mistakes in a program text, in order, errors and warnings. Parameters as for :func:`compile_program`.

    ``closed``: no names will be added later, so an unbound name is an error; by default this holds with ``allow``.
    """
    source = as_source(source)
    if source.surface == "python":
        return _diagnose_python(source, names, limits or Limits(), allow, env_names, closed=closed)
    try:
        analyzer, tree = _read_whole(source, names, limits, allow, env_names, allowance)
    except AgentflowError as error:
        return [Diagnostic(error, "error")]
    findings = certain_failures(analyzer, tree, closed=allow is not None if closed is None else closed)
    if allow is None:
        findings += called_answers(analyzer, tree)
    wrong = [Diagnostic(error, "error") for error in analyzer.errors]
    wrong += [Diagnostic(each.error, "warning" if each.caught else "error") for each in findings]
    return sorted(wrong, key=lambda each: start_of(each.error))


def _diagnose_python(
    source: Source,
    names: Names | None,
    limits: Limits,
    allow: Iterable[str] | None,
    env_names: Iterable[str],
    *,
    closed: bool | None,
) -> list[Diagnostic]:
    from agentflow.lang.python.compiling import findings_of  # Most processes never see such a text.

    granted = frozenset(allow) if allow is not None else None
    try:
        errors, doubts = findings_of(
            source, describer(names, frozenset(env_names)), limits, granted, names, closed=closed is True
        )
    except AgentflowError as error:
        return [Diagnostic(error, "error")]
    wrong = [Diagnostic(each, "error") for each in errors] + [Diagnostic(each, "warning") for each in doubts]
    return sorted(wrong, key=lambda each: start_of(each.error))
