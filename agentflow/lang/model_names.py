"""The calls of names chosen by a model: a name is data, and is called with the authority of the calling code.

Found by following values through the text: results of tasks and ``solve``, values computed from them, the variables that
hold them. Procedures are opaque: a value that went through one is not followed, so the absence of a finding proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.checks import CertainFailure, children
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Node

_STEPS = (
    ir.Let, ir.Define, ir.SetLocal, ir.DefineGlobal, ir.SetGlobal, ir.Call, ir.RuntimeCall, ir.PrimCall
)  # fmt: skip
"""The nodes that bind a value to a variable, or call one."""
_ELEMENTWISE = frozenset({"map", "for-each", "filter", "pmap", "pmap-on"})


@dataclass(slots=True)
class Trail:
    """The data flow of a program or a part of one: the nodes that bind or call, and the variables it reads.

    ``starts`` says whether an answer begins here; ``followed`` caches which variables hold answers.
    """

    nodes: list[Any] = field(default_factory=list[Any])
    reads: set[str] = field(default_factory=set[str])
    starts: bool = False
    followed: dict[frozenset[str], tuple[frozenset[str], list[Node]]] = field(
        default_factory=dict[frozenset[str], tuple[frozenset[str], "list[Node]"]]
    )

    def follow(self, variables: frozenset[str]) -> tuple[frozenset[str], list[Node]]:
        """The variables of the environment that hold answers when these do, and the calls of such values."""
        if not self.starts and not variables:
            return variables, []
        if variables not in self.followed:
            answers = _Answers(self.nodes, variables)
            held = frozenset(each for each in answers.variables if isinstance(each, str))
            self.followed[variables] = held, [node.at for node in self.nodes if answers.holds(_callee(node))]
        return self.followed[variables]


def trail(tree: IR) -> Trail:
    """Visit all of an analysed program."""
    result = Trail()
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        pending.extend(children(node))
        if isinstance(node, ir.Call):
            pending.extend(pair.value for pair in node.pairs or ())
        if isinstance(node, ir.Global):
            result.reads.add(node.name)
        elif isinstance(node, _STEPS):
            result.nodes.append(node)
        result.starts = result.starts or _is_answer(node)
    return result


def called_answers(analyzer: Analyzer, tree: IR) -> list[CertainFailure]:
    """The calls of an analysed program with an operator from a model's answer; they need not fail."""
    return answers_of_parts([(analyzer, trail(tree))])[0]


def answers_of_parts(parts: Sequence[tuple[Analyzer, Trail]]) -> list[list[CertainFailure]]:
    """The same for each part of one program: variables of the environment connect the parts."""
    held: frozenset[str] = frozenset()
    while True:
        followed = [part.follow(held & part.reads) for _, part in parts]
        more = held.union(*(variables for variables, _ in followed))
        if more == held:
            return [[_finding(a, at) for at in calls] for (a, _), (_, calls) in zip(parts, followed, strict=True)]
        held = more


def _callee(node: Any) -> Any:
    """The callee of ``node``, if it is a call of a value."""
    if isinstance(node, ir.Call):
        return node.operator
    return node.args[0] if isinstance(node, ir.PrimCall) and node.primitive.name == "apply" and node.args else None


def _finding(analyzer: Analyzer, node: Node) -> CertainFailure:
    message = "this calls a name from a model's answer, with all the authority of the program"
    hint = "choose with (case answer ...) among the names you expect, or run it by (eval-program ... (allow name ...))"
    return CertainFailure(analyzer.error(node, "name/from-model", message, hint), caught=True)


def _is_answer(node: Any) -> bool:
    if isinstance(node, ir.EffectCall):
        return node.kind == "task"
    return isinstance(node, ir.RuntimeCall) and node.op == "solve"


def _is_elementwise(node: ir.RuntimeCall | ir.PrimCall) -> bool:
    name = node.op if isinstance(node, ir.RuntimeCall) else node.primitive.name
    return name in _ELEMENTWISE and bool(node.args)


class _Answers:
    """The variables that may hold a part of an answer, computed as a fixed point."""

    def __init__(self, nodes: list[Any], variables: frozenset[str]) -> None:
        self.variables: set[object] = set(variables)
        size = -1
        while size != len(self.variables):
            size = len(self.variables)
            for node in nodes:
                self._assignment(node)

    def _assignment(self, node: Any) -> None:
        if isinstance(node, ir.Let):
            for var, value in node.inits:
                self._bind(var, value)
        elif isinstance(node, ir.Define | ir.SetLocal):
            self._bind(node.var, node.value)
        elif isinstance(node, ir.DefineGlobal | ir.SetGlobal):
            self._bind(node.name, node.value)
        elif isinstance(node, ir.Call):
            self._parameters(node.operator, node.args)
        elif isinstance(node, ir.RuntimeCall | ir.PrimCall) and _is_elementwise(node):
            self._parameters(node.args[0], node.args[1:])

    def _parameters(self, function: IR, values: list[IR]) -> None:
        if isinstance(function, ir.Lambda):
            for var, value in zip(function.params, values, strict=False):
                self._bind(var, value)

    def _bind(self, variable: object, value: IR) -> None:
        if self.holds(value):
            self.variables.add(variable)

    def holds(self, node: Any) -> bool:
        """Whether the value of ``node`` may be a part of an answer."""
        pending: list[Any] = [node]
        while pending:
            at = pending.pop()
            if _is_answer(at):
                return True
            if isinstance(at, ir.Local):
                if at.var in self.variables:
                    return True
            elif isinstance(at, ir.Global):
                if at.name in self.variables:
                    return True
            elif isinstance(at, ir.PrimCall):
                pending.extend(each for each in at.args if not isinstance(each, ir.Lambda))
            elif isinstance(at, ir.If):
                pending += [at.then, at.other]
            elif isinstance(at, ir.Cond):
                pending += [*(each.body for each in at.clauses), at.other]
            elif isinstance(at, ir.Logic):
                pending.extend(at.items)
            elif isinstance(at, ir.Seq):
                pending.append(at.items[-1])
            elif isinstance(at, ir.Let | ir.Try):
                pending.append(at.body)
            elif isinstance(at, ir.MakeDict):
                pending.extend(at.values)
        return False
