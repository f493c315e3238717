"""Every attack by a program in S-expressions, written in Python: the twins of ``test_hostile_programs.py``."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError
from tests.hostile import test_hostile_programs as sexp
from tests.hostile.arena import Arena
from tests.hostile.test_hostile_programs import Host, Scene
from tests.support.spending import at_most

WRITE = "system.write_file(file_path='made.txt', content='x')"
SHELL = "system.execute_shell_command(command='touch made.txt')"
_TASK = '@task(tools=["system:write_file"])\ndef t(x) -> str:\n    """{{x}}"""\n'

UNGRANTED: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "tool": (WRITE, ()),
    "another_tool": (WRITE, ("system:read_files",)),
    "shell": (SHELL, ("system:write_file",)),
    "eval_widens": (f'eval_program("{WRITE}", allow=["system:write_file"])', ("system:read_files",)),
    "eval_without_a_grant": (f'eval_program("{WRITE}")', None),
    "eval_in_eval": (
        f"eval_program('''eval_program(\"{WRITE}\", allow=[\"system:write_file\"])''', allow=['system:read_files'])",
        None,
    ),
    "eval_of_text": (f'text = "{WRITE}"\neval_program(text)', None),
    "name_as_value": ("f = 'system:write_file'\nf(file_path='made.txt', content='x')", ("system:read_files",)),
    "name_built": ("f = 'system:' + 'write_file'\nf(file_path='made.txt', content='x')", ("system:read_files",)),
    "symbol_built": ("f = {'n': 'system:write_file'}.n\nf(file_path='made.txt', content='x')", ("system:read_files",)),
    "in_a_branch": (f"parallel({WRITE}, 1)", ()),
    "in_a_closure": (f"(lambda: {WRITE})()", ()),
    "in_a_handler": (f"try:\n    raise ValueError('x')\nexcept ValueError:\n    {WRITE}", ()),
    "in_a_macro": (f"def m():\n    return {WRITE}\nm()", ()),
    "own_task_with_tools": (f"{_TASK}t('y')", ("system:read_files",)),
}
PYTHON = {
    "class": "{'a': 1}.__class__",
    "mro": "x.__class__.__mro__",
    "globals": "f.__globals__",
    "method": "x.reveal()",
    "format_attribute": "'{0.__class__}'.format(x)",
    "format_index": "'{x[0]}'.format_map({'x': x})",
    "format_conversion": "f'{x!r}'",
    "import": "__import__('os')",
    "python_name": "open('OUTSIDE/secret.txt')",
    "dunder": "__builtins__",
    "apply_host": "list(map(eval, ['1']))",
}
ENDLESS = {
    "while": "while True:\n    pass",
    "recursion": "def f(n):\n    return 1 + f(n)\nf(1)",
    "tail_recursion": "def f(n):\n    return f(n)\nf(1)",
    "mutual": "def f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nf(1)",
    "loop": "for i in range(100_000_000):\n    pass",
    "string_doubling": "s = 'x' * 8\nwhile True:\n    s += s",
    "list_doubling": "s = [1, 2, 3]\nwhile True:\n    s = s + s",
    "nesting": "s = []\nwhile True:\n    s = [s]",
    "big_integer": "n = 2\nwhile True:\n    n = n * n",
    "range": "list(range(1_000_000_000))",
    "caught": "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "finally": "try:\n    while True:\n        pass\nfinally:\n    while True:\n        pass",
    "branches": "def f(x):\n    while True:\n        pass\npmap(f, range(100))",
    "fork_bomb": "def f():\n    return parallel(f(), f())\nf()",
    "macro_bomb": "m = lambda x: m(m(x))\nm(1)",
    "eval_bomb": "p = 'eval_program(p, bindings={\"p\": p})'\neval_program(p, bindings={'p': p})",
    "effects": "while True:\n    system.list_directory(directory_path='.')",
    "split": "('x' * 50_000 + '').split('x')",
    "replace": "('x' * 10_000).replace('x', 'y' * 10_000)",
    "deep_text": "(" * 100_000,
    "deep_quote": "-" * 50_000 + "x",
    "deep_json": "json.loads('[' * 50_000)",
    "long_symbol": "x" * 190_000,
    "many_forms": "1\n" * 20_000,
}


def test_every_case_has_its_twin() -> None:
    """Whoever adds an attack in S-expressions writes it in Python too."""
    assert UNGRANTED.keys() == sexp.UNGRANTED.keys()
    assert PYTHON.keys() == sexp.PYTHON.keys()
    assert ENDLESS.keys() == sexp.ENDLESS.keys()


@pytest.fixture
async def scene(arena: Arena) -> Any:
    made = Scene(arena)
    async with made.flow:
        yield made


def _has_code(error: AgentflowError) -> None:
    assert "/" in error.code and error.code not in ("host/raised", "internal/error", "eval/error"), error.render()


@pytest.mark.parametrize("name", UNGRANTED)
async def test_a_text_has_its_grants_and_no_more(name: str, scene: Scene) -> None:
    """Whatever way a tool is named, a text without the grant does not reach it; the refusal has a code."""
    text, allow = UNGRANTED[name]
    options = {} if allow is None else {"allow": list(allow)}
    with pytest.raises(AgentflowError) as caught:
        await scene.run(text, surface="python", **options)
    scene.arena.saw(caught.value)
    _has_code(caught.value)
    assert not (scene.arena.root / "made.txt").exists()


@pytest.mark.parametrize("name", PYTHON)
async def test_no_way_into_python(name: str, scene: Scene) -> None:
    """Attributes, methods, globals and builtins of Python objects are out of reach of texts in Python too."""
    try:
        value = await scene.run(PYTHON[name], surface="python", bindings={"x": Host(), "f": Host().reveal})
    except AgentflowError as error:
        scene.arena.saw(error)
        _has_code(error)
    else:
        assert name == "format_conversion" and isinstance(value, str)


@pytest.mark.parametrize("name", ENDLESS)
async def test_texts_end_at_their_limits(name: str, scene: Scene) -> None:
    """Endless and exploding texts end in an error with a code, in time, while the loop goes on."""
    with at_most(20):
        try:
            value = await scene.run(ENDLESS[name], surface="python")
        except AgentflowError as error:
            scene.arena.saw(error)
            _has_code(error)
            assert len(error.render()) < 50_000
        else:
            assert name in ("many_forms", "split"), str(value)[:200]
