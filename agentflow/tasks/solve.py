"""Solve: a model writes a program for a goal; the program is checked and run, or returned with its errors.

Nothing of a program runs before all of it has been checked: syntax, names and arity, granted tasks and tools, bounds.
Errors from checking or running it go back to the model, for a limited number of rounds. The program runs within the
same run, so its steps, tokens and money are the run's.
"""

from __future__ import annotations

import asyncio
import glob
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentflow.core.call.call import CallContext
from agentflow.core.call.journal_port import Content
from agentflow.core.data.errors import LimitExceeded, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import FILES
from agentflow.core.data.messages import Usage
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult, warn_of_failure
from agentflow.core.data.source import Surface
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.data.values import to_json
from agentflow.core.events.effects import Solve
from agentflow.core.events.events import SubtaskStarted
from agentflow.core.ports.ports import ProgramExplorer
from agentflow.tasks.granted import GrantedNames
from agentflow.tasks.runner import AtomicTaskExecutor
from agentflow.tasks.template import text_of

if TYPE_CHECKING:
    from agentflow.core.call.written_program import Explore, WrittenProgram

_TEMPLATES: Mapping[Surface, str] = MappingProxyType({"sexp": "atomic:solve", "python": "atomic:solve_python"})
"""The built-in template that asks for a program, by the language that it is written in."""


@frozen
class Solver:
    """Carries out ``(solve goal (allow ...) (max-rounds n))`` and takes over tasks that ran out of context or output.

    Parameters: ``executor`` calls the model; ``card`` describes a language; ``names`` the granted names; ``max_steps``
    bounds one program, so that an endless loop costs a round and not the run; ``explorer`` tries programs out on request;
    ``surface`` is the default language of programs. The run of the call checks and runs the programs.
    """

    executor: AtomicTaskExecutor
    card: Callable[[Surface], str]
    names: GrantedNames
    max_steps: int = 1_000_000
    explorer: ProgramExplorer | None = None
    surface: Surface = "sexp"

    async def solve(self, effect: Solve, call: CallContext) -> TaskResult:
        """Let a model write a program for ``effect.goal`` and run it.

        Returns a COMPLETE result with the program's value, and ``program`` and ``rounds`` in its notes; FAILED
        (subtask_failure) with the last program and its errors if the rounds are used up, if solving is nested deeper
        than the run's ``subtask_depth`` or within itself, or takes more than its own ``max_model_calls``. RunStopped and
        cancellation pass through.
        """
        allow = frozenset(effect.allow)
        if call.grants is not None:
            allow &= call.grants
        request = SubtaskRequest(
            subtype="solve", name="agentflow:solve", description=effect.goal, inputs=dict(effect.inputs)
        )
        mark = _mark(effect, allow)
        depth = 1 + sum(ancestor.startswith(("sub:", "solve:")) for ancestor in call.subtask_chain)
        self._warn_of_unknown(allow, call)
        with call.nested(SubtaskStarted, request=request, depth=depth) as scope:
            scope.call.add_mark(mark)
            if mark in call.subtask_chain:
                result = _refused("a program asks to solve the very goal it was written for", "cycle", "solve/cycle")
            elif depth > call.run.limits.subtask_depth:
                result = _refused(f"solving is nested {depth} deep", "depth", "solve/depth")
            else:
                result = await self._within_calls(effect, allow, scope.call)
            scope.set(result=result, usage=result.usage, name="solve")
        return result

    # Asked for: with it no program has a bound on its model calls (decision 32)
    async def decompose(
        self,
        template: TaskTemplate,
        request: SubtaskRequest,
        goal: str,
        failed: TaskResult,
        call: CallContext,
        *,
        rounds: int,
    ) -> TaskResult:
        """Take over a task that failed with RESOURCE_EXHAUSTION, in at most ``rounds`` rounds.

        The program may call the task itself (on smaller parts) and its tools; the task's inputs are bound under their
        names, its files as ``files``. If no program succeeds, the original failure is returned, with the attempt in
        ``notes["decomposition"]``.
        """
        files = list(request.file_paths or template.file_paths)
        own = (template.name, *(f"{FILES}{glob.escape(path)}" for path in files))
        allow = (*own, *(template.tools or ()))
        told = (
            f"{clip(goal, 8_000)}\n\nOne call of '{template.name}' could not do it: {failed.content}. "
            "Split the inputs or the files, call it on the parts, and combine what it gives."
        )
        # The call is this task's own and ends with it: its program may ask again for anything that its caller could,
        # in parts that inherit nothing of the whole.
        call.grants = None if call.grants is None else call.grants.union(own)
        call.material = None
        inputs = {**request.inputs, **({"files": files} if files else {})}
        solved = await self.solve(Solve(told, allow, rounds, inputs), call)
        if solved.failed:
            return replace(failed.with_notes(decomposition=solved.notes), usage=solved.usage)
        notes = replace(failed.notes, error=None).merged({**solved.notes, "decomposed": True})
        return replace(solved, notes=notes)

    async def guide(self, allow: frozenset[str], surface: Surface, call: CallContext) -> tuple[str, Mapping[str, str]]:
        described, defined = self.names.described, call.definitions
        usages = {name: line for name in sorted(allow) if (line := described(name, surface, defined)) is not None}
        return await self._card(surface), usages

    async def _card(self, surface: Surface) -> str:
        # That of Python loads the described parts the first time.
        return self.card(surface) if surface == "sexp" else await asyncio.to_thread(self.card, surface)

    def _warn_of_unknown(self, allow: frozenset[str], call: CallContext) -> None:
        for name in sorted(allow):
            if self.names.described(name, defined=call.definitions) is None:
                call.warn("solve/unknown-name", f"'{name}' is granted to solve, and nothing has that name", name=name)

    async def _within_calls(self, effect: Solve, allow: frozenset[str], call: CallContext) -> TaskResult:
        """The result of all rounds, within the model calls that ``effect`` allows."""
        most = effect.max_model_calls
        if most is None:
            return await self._rounds(effect, allow, call)
        around = call.run
        call.run = around.limited(most, call)
        try:
            return await self._rounds(effect, allow, call)
        except LimitExceeded as error:
            if error.limit != "model_calls" or error.allowed != most or around.calls_left() == 0:
                raise  # a limit of the run
            return _refused(f"solving took all of its {most} model calls", "model_calls", "solve/model-calls")
        finally:
            call.run = around

    async def _rounds(self, effect: Solve, allow: frozenset[str], call: CallContext) -> TaskResult:
        surface = effect.surface or self.surface
        granted, variables = self.names.describe(allow, surface, call.definitions), _variables(effect.inputs)
        card = await self._card(surface)
        rounds = max(1, effect.max_rounds)
        from agentflow.core.call.written_program import WrittenProgram  # few processes solve
        from agentflow.lib.text.fences import program_of

        explore: Explore | None = None
        if effect.explore and (explorer := self.explorer) is not None:
            explore = lambda program: explorer.explore(program, allow, effect.inputs, call)  # noqa: E731
        usage, feedback = Usage(), ""
        attempts: list[WrittenProgram] = []
        for number in range(1, rounds + 1):
            inputs = {
                "goal": effect.goal,
                "card": card,
                "granted": granted,
                "variables": variables,
                "feedback": feedback,
            }
            asked = {"the goal": effect.goal, "the variables": variables, "what was wrong before": feedback}
            answer = await self._ask(_TEMPLATES[surface], inputs, asked, call)
            usage += answer.usage
            if answer.failed:
                return replace(answer.with_notes(rounds=number), usage=usage)
            attempt = WrittenProgram(program_of(answer.content, surface), surface)
            attempts.append(attempt)
            value = await attempt.run(
                allow, effect.inputs, call, steps=self.max_steps, explore=explore, taken=2 * number - 1
            )
            if not attempt.errors:
                result = warn_of_failure(TaskResult.of(value), call.warn).with_notes(
                    program=attempt.text, rounds=number, allow=sorted(allow)
                )
                if surface != "sexp":
                    result = result.with_notes(surface=surface)
                return replace(result, usage=usage)
            feedback = await self._feedback(attempt, rounds - number, call)
        last = attempts[-1]
        failure = TaskResult.failure(
            "subtask_failure",
            f"no program reached the goal in {rounds} round{'s' * (rounds != 1)}; the last failed while "
            f"{last.stage}: {last.errors[0]}",
            details={"code": "solve/rounds", "goal": clip(effect.goal), "errors": last.errors[:10]},
            program=last.text,
            rounds=rounds,
            attempts=[{"program": a.text, "stage": a.stage, "errors": a.errors[:10]} for a in attempts],
        )
        return replace(failure, usage=usage)

    async def _feedback(self, attempt: WrittenProgram, left: int, call: CallContext) -> str:
        inputs = {
            "program": attempt.shown,
            "errors": clip("\n".join(attempt.errors), 8_000),
            "stage": attempt.stage,
            "rounds_left": left,
        }
        return (await self._ask("atomic:solve_repair", inputs, inputs, call)).content

    async def _ask(self, template: str, inputs: Mapping[str, Any], content: Content, call: CallContext) -> TaskResult:
        """Run a built-in template; in a durable run once. ``content`` is the part of its inputs that a record depends on."""
        journal = call.run.journal
        if journal is None:
            return await self.executor.run_template(template, inputs, call)
        step = call.start(call.span, "Prompt", template, content)
        work = partial(self.executor.run_template, template, inputs, step)
        return await journal.step("solve", template, content, step, work)


def _variables(inputs: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for name, value in inputs.items():
        listing = text_of(value)
        size = f", {len(listing):,} characters in all" if len(listing) > 300 else ""
        lines.append(f"{name}: {clip(listing, 300)}{size}")
    return "\n".join(lines) or "(none)"


def _mark(effect: Solve, allow: frozenset[str]) -> str:
    try:
        content = to_json([effect.goal, sorted(allow), effect.inputs])
    except ValueError:
        content = repr((effect.goal, sorted(allow), sorted(effect.inputs)))
    return "solve:" + hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _refused(message: str, cause: str, code: str) -> TaskResult:
    return TaskResult.failure(
        "subtask_failure",
        message,
        details={"cause": cause, "code": code, "hint": "write the steps out instead of solving again"},
    )
