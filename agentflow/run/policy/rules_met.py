"""Whether the rules of a policy are for something that is there: a rule that never applies guards nothing, and nothing would say so."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.provenance import USER, Provenance, Sink
from agentflow.core.call.reading import ASKED
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.core.ports.ports import TemplatePort, ToolPort, WorkflowPort
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.file_writer import state_path
from agentflow.lib.text.suggest import did_you_mean, suggest
from agentflow.run.bounds.sinks import held_by
from agentflow.run.policy.provenance import RunGuard
from agentflow.run.policy.written_files import WrittenFiles
from agentflow.run.strand.definitions import name_of_function, parameters_of

_log = logging.getLogger(__name__)
_CHOICE = frozenset({"patternProperties", "anyOf", "oneOf", "allOf", "$ref", "if"})
"""Keywords of a schema by which there may be more arguments than its properties."""
_OF_TASKS = ("context", "files", "file_paths", "history_config")
"""What any task may be called with."""
_UNNAMED = frozenset({*ASKED, "get_context"})
_PATTERN = re.compile(r"[*?\[]")
_IN_NAME = r"[\w:!?*/<>=-]"


@frozen
class _Named:
    """A name in a policy, and what it says of it: ``what``."""

    name: str
    what: str


class RulesMet:
    """Puts policies in force, and looks for rules that never apply among the ``tools``, ``tasks`` and saved ``workflows`` of a flow.

    Files in a policy are relative to ``roots``.
    """

    def __init__(
        self, tools: ToolPort, tasks: TemplatePort, workflows: WorkflowPort | None = None, roots: Sequence[str] = ()
    ) -> None:
        self._tools = tools
        self._tasks = tasks
        self._workflows = workflows
        self._roots = roots
        self._written = WrittenFiles(state_path() / "written.jsonl")
        self._logged: set[str] = set()

    def guard(self, policy: Provenance) -> RunGuard:
        """The guard of a run that begins. Raises as :meth:`check_arguments`."""
        self.check_arguments(policy)
        return RunGuard(policy, self._tools, self._tasks, self._roots, self._written)

    def check_arguments(self, policy: Provenance) -> None:
        """Refuse a rule for an argument that what it names does not have. Raises ConfigurationError (``provenance/policy``)."""
        for rule in _rules_of(policy):
            _check_arguments(rule, self._arguments(rule.tool))

    async def check_names(self, program: Program, env: SexpEnvironment, call: CallContext) -> None:
        """Warn of :meth:`unmet` names in the policy of a run (``provenance/unmet``), once in a run; where nobody watches, once in the log."""
        guard = call.reading.guard if call.reading is not None else None
        if not isinstance(guard, RunGuard):
            return
        unmet = await self.unmet(guard.policy, program.text, lambda: {name: _value(env, name) for name in env.names()})
        for name, message in unmet.items():
            if name not in guard.told:
                guard.told.add(name)
                call.warn("provenance/unmet", message, name=name)
                if not call.run.watched and name not in self._logged:
                    self._logged.add(name)
                    _log.warning("%s", message)

    async def unmet(self, policy: Provenance, text: str, variables: Callable[[], Mapping[str, Any]]) -> dict[str, str]:
        """The names in a policy that nothing in the flow, in the text of a program and its variables has: what is to be said of each.

        What is missing may come later: a tool of a server, a task that a program defines. It is an error only where it is nearly the
        name of something that no rule names itself: there a tool goes unguarded. Raises ConfigurationError (``provenance/policy``).
        """
        self._check_readers(policy)
        named = [each for each in _named(policy) if not self._has(each.name)]
        if not named:
            return {}
        names = {*self._tools.names(), *self._tasks.template_names(), *_UNNAMED}
        named = [each for each in named if not _is_met(each.name, names)]
        if not named:
            return {}
        if self._workflows is not None:
            names.update(await self._workflows.load_names())
        functions = held_by(variables()).functions
        _check_functions(policy, names, functions)
        names.update([name_of_function(each) for _, each in functions])
        ruled = {each.name for each in _named(policy)}
        return {
            each.name: _missing(each, names, ruled)
            for each in named
            if not _is_met(each.name, names) and not _is_word(each.name, text)
        }

    def _has(self, name: str) -> bool:
        """Whether something has exactly this name, without going over all there are."""
        return name in _UNNAMED or self._tools.find(name) is not None or self._tasks.find_compiled(name) is not None

    def _check_readers(self, policy: Provenance) -> None:
        """Refuse readers of a source that nothing here has, where one is nearly called so of which nothing says who may see it."""
        for one in (policy, *policy.narrowed_by):
            if not one.readers:
                continue
            tools = [(name, self._tools.find(name)) for name in self._tools.names()]
            sources = {policy.source_of(name, (tool and tool.source) or "") for name, tool in tools}
            for source in one.readers:
                if source in sources or _PATTERN.search(source):
                    continue
                near = suggest(source, [each for each in sources if each not in one.readers])
                if near is not None:
                    raise _wrong(
                        f"readers are of '{source}', which is the source of nothing here, and not of '{near}', which is",
                        f"write '{near}'",
                    )

    def _arguments(self, name: str) -> set[str] | None:
        """The arguments that tools and tasks of this name have; None if there are none of this name, or it may have any."""
        if name in ASKED and name != "solve":
            return set(ASKED[name])
        arguments: set[str] = set()
        tool, task = self._tools.find(name), self._tasks.find_compiled(name)
        if tool is not None:
            schema = tool.spec.input_schema
            if schema.get("additionalProperties") or not _CHOICE.isdisjoint(schema):
                return None
            arguments.update(schema.get("properties") or ())
        if task is not None:
            arguments.update(task.template.params, _OF_TASKS)
        return None if tool is None and task is None else arguments


def _missing(named: _Named, names: Iterable[str], ruled: set[str]) -> str:
    near = None if _PATTERN.search(named.name) else suggest(named.name, [each for each in names if each not in ruled])
    if near is not None:
        raise _wrong(
            f"{named.what} '{named.name}', which is nothing here, so that '{near}' goes unguarded",
            f"write '{near}'; or register '{named.name}' before the run",
        )
    hint = did_you_mean(named.name, names)
    return f"{named.what} '{named.name}', which is nothing here: it does not apply{f'; {hint}' if hint else ''}"


def _check_arguments(rule: Sink, arguments: set[str] | None) -> None:
    if arguments is None:
        return
    for argument in (rule.argument, rule.readers_in):
        if argument not in ("", "*") and argument not in arguments:
            near = did_you_mean(argument, arguments)
            raise _wrong(
                f"a rule is for '{argument}' of {rule.tool}, which has no such argument: it would never apply",
                near or (f"it has {', '.join(map(repr, sorted(arguments)))}" if arguments else "it has none"),
            )


def _rules_of(policy: Provenance) -> list[Sink]:
    return [rule for one in (policy, *policy.narrowed_by) for rule in one.rules]


def _named(policy: Provenance) -> list[_Named]:
    """The names of tools, tasks and functions that a policy says something of."""
    named: dict[str, _Named] = {}
    for one in (policy, *policy.narrowed_by):
        for rule in one.rules:
            named.setdefault(rule.tool, _Named(rule.tool, "a rule is for"))
        for name in one.sources:
            named.setdefault(name, _Named(name, "sources name"))
        for source in one.readers:
            if source.startswith("tool:") and one.sources.get(source.removeprefix("tool:"), USER) == USER:
                name = source.removeprefix("tool:")
                named.setdefault(name, _Named(name, "readers are of what came from the tool"))
    return list(named.values())


def _is_met(name: str, names: Iterable[str]) -> bool:
    """Whether something has this name, or one that fits the pattern."""
    return name in names or (_PATTERN.search(name) is not None and any([fnmatchcase(each, name) for each in names]))


def _is_word(name: str, text: str) -> bool:
    """Whether a text says a name: of what it defines itself, perhaps."""
    return re.search(rf"(?<!{_IN_NAME}){re.escape(name)}(?!{_IN_NAME})", text) is not None


def _check_functions(
    policy: Provenance, others: Iterable[str], functions: Iterable[tuple[str | None, Callable[..., Any]]]
) -> None:
    """Refuse rules for functions of the host that go by the name of a variable, or name no parameter."""
    by_name = {name_of_function(function): function for _, function in functions}
    by_variable = {name: function for name, function in functions if name is not None}
    for rule in _rules_of(policy):
        if rule.tool in others:
            continue
        if rule.tool in by_name:
            parameters, rest = parameters_of(by_name[rule.tool])
            names = {*parameters, *([rest] if rest is not None else ())}
            _check_arguments(rule, names or None)
        elif rule.tool in by_variable:
            own = name_of_function(by_variable[rule.tool])
            raise _wrong(
                f"a rule is for '{rule.tool}', a variable that holds the function '{own}': it would never apply",
                f"a rule knows a function by its own name: '{own}'",
            )


def _value(env: SexpEnvironment, name: str) -> Any:
    cell = env.find(name)
    return None if cell is None else cell.v


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="provenance/policy", hint=hint)
