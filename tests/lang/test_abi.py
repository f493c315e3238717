"""The seam of the language: what generated code asks of its strand is written down, and everything else is out of reach."""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from agentflow.core.data.known_names import NameInfo, Template
from agentflow.core.data.labels import Following
from agentflow.core.data.limits import Limits
from agentflow.lang import abi, builtins, kernel, support
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.forms import FORMS
from agentflow.lang.macros import MacroStrand
from agentflow.lang.program import compile_program
from agentflow.lang.tokens import tokens
from agentflow.run.strand.operations import OPERATIONS
from agentflow.run.strand.strand import Strand
from agentflow.tasks.template_registry import prepare_definition
from tests.support.manual import Block, blocks

MANUAL = Path(__file__).parents[1] / "spec"
BLOCKS: list[Block] = [block for page in sorted(MANUAL.glob("*.md")) for block in blocks(page)]
RUNTIME = {name for name in vars(abi.Runtime) if not name.startswith("_")} | set(abi.Runtime.__annotations__)
STRICT = (
    RUNTIME
    | {name for name in vars(abi.StrictRuntime) if not name.startswith("_")}
    | set(abi.StrictRuntime.__annotations__)
)
"""What code of programs under a strict policy may ask."""
VALUES = {"v", "arity", "code", "check_arity"}
"""The attributes of cells, closures and primitives, which generated code holds as well."""


class Tools:
    """The tools that the manual's programs call."""

    def describe(self, name: str) -> NameInfo | None:
        return NameInfo("tool") if name in ("shout", "add_up", "broken") else None

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        return prepare_definition(fields)

    def known_names(self) -> Iterable[str]:
        return ["shout", "add_up", "broken"]


MORE = [
    "(define x 1) (define (f) (set! x 2)) (f)",
    "(let f ((x 1)) (+ 1 (f x)))",
    "(define (f y) (lambda () (set! y 1))) (f 1)",
    '(solve "goal" (allow shout)) (call-workflow saved (x 1))',
]


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def attributes(text: str, *, labelled: Following = False) -> set[str]:
    """The names of all attributes that the code generated for a program touches; its globals are its own constants."""
    program = compile_program(text, names=Tools(), labelled=labelled)
    main: Any = program.link(SexpEnvironment())
    steps = [each for code in codes(main.__code__) for each in dis.get_instructions(code)]
    assert {each.argval for each in steps if each.opname == "LOAD_GLOBAL"} <= main.__globals__.keys()
    return {each.argval for each in steps if each.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")}


def test_generated_code_touches_what_the_seam_declares() -> None:
    """Over the whole manual, so over all forms: nothing is asked of a strand that the seam does not declare, nor of a
    global that is no constant of the program."""
    seen: set[str] = set()
    forms: set[str] = set()
    for text in [*MORE, *(each.program for block in BLOCKS for each in block.expectations if each.kind != "error:")]:
        seen |= attributes(text)
        forms |= {token.text for token in tokens(text) if token.text in FORMS}
    assert seen <= RUNTIME | VALUES, seen - RUNTIME - VALUES
    written_shorter = {"quote", "quasiquote", "unquote", "unquote-splicing"}
    assert set(FORMS) - forms <= written_shorter, "every form is in the manual"
    asked_by_primitives = {"limits", "charge", "allocate", "fresh_name", "fork", "under"}
    assert RUNTIME - seen <= asked_by_primitives, "nothing is declared that nobody asks for"


def asked_in(module: Path) -> set[str]:
    """What a module asks of the strand ``rt``."""
    return {
        node.attr
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rt"
    }


def test_the_machine_asks_what_its_seam_declares() -> None:
    """The machine that carries out programs under a strict policy asks of their strand what is written down for it, and all of that."""
    seen: set[str] = set()
    for module in Path(kernel.__file__).parent.glob("*.py"):
        seen |= asked_in(module)
    assert seen <= STRICT, seen - STRICT
    assert STRICT - RUNTIME - seen <= {"opened"}, "nothing is declared that nobody asks for"


@pytest.mark.parametrize(
    "module", [*sorted(Path(builtins.__file__).parent.glob("*.py")), Path(support.__file__)], ids=lambda p: p.stem
)
def test_primitives_touch_what_the_seam_declares(module: Path) -> None:
    """The functions that generated code calls with its strand ask no more of it than generated code does."""
    names = asked_in(module)
    allowed = STRICT if module.stem == "strict" else RUNTIME
    assert names <= allowed, names - allowed


@pytest.mark.parametrize("strand", [Strand, MacroStrand])
def test_strands_have_the_declared_members_and_answer_for_no_others(strand: type) -> None:
    """Every member is there with the declared parameters; there is no catch-all for those that are not."""
    assert not hasattr(strand, "__getattr__")
    for name in RUNTIME:
        declared, actual = getattr(abi.Runtime, name, None), getattr(strand, name)
        if inspect.isfunction(declared):
            wanted, has = inspect.signature(declared).parameters, inspect.signature(actual).parameters
            assert [str(each.kind) for each in wanted.values()] == [str(each.kind) for each in has.values()], name


def test_operations_are_a_closed_set() -> None:
    """The runtime's table carries out each operation that there is, and the compiler asks for no other."""
    assert set(OPERATIONS) == abi.OPERATIONS


def test_macros_refuse_to_act() -> None:
    """A template may not act in any of the ways a program may."""
    rt = MacroStrand(Limits(), str, StepAllowance())
    span = compile_program("1").source.span(0, 1)
    for op in sorted(abi.OPERATIONS):
        with pytest.raises(Exception, match="may compute, but not act"):
            rt.operation(op, 0, span)
