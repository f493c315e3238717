"""The public names and what importing them costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import agentflow
import agentflow.errors
import agentflow.events
from agentflow.core.events import events as core_events


def test_public_names_are_sorted_few_and_real() -> None:
    """`agentflow.__all__` is sorted, at most 73 names, each resolves and each class or function has a docstring."""
    assert agentflow.__all__ == sorted(agentflow.__all__)
    assert len(agentflow.__all__) <= 73
    for name in agentflow.__all__:
        value = getattr(agentflow, name)
        if name != "Event":
            assert value.__doc__, f"{name} has no docstring"


def test_type_checkers_see_the_same_names() -> None:
    """The stub beside ``agentflow/__init__.py`` imports each public name from where it is loaded, and no other."""
    stub = ast.parse(Path(agentflow.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    stated = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
    loaded = {
        name: (f"agentflow.{module}", name) for module, names in agentflow._NAMES.items() for name in names.split()
    }
    assert stated == loaded and sorted(loaded) == agentflow.__all__


def test_every_event_is_public() -> None:
    """``agentflow.events`` lists, one by one, what ``core/events/events.py`` gathers."""
    assert sorted(agentflow.events.__all__) == sorted(core_events.__all__)


def test_the_fixed_names_are_there() -> None:
    """The names that docs and users rely on are exported from the top level."""
    fixed = """AgentFlow Limits ScriptedProvider tool SexpEvaluator SexpEnvironment TaskSystem MemorySystem BaseHandler
    SystemExecutorFunctions FileAccessManager TaskResult TaskTemplate SubtaskRequest ContextManagement HistoryConfig
    ContextGenerationInput AssociativeMatchResult MatchItem DataContext ModelRequest ModelDelta Usage Symbol Closure
    Program Event CallContext ProviderAdapter AgentflowError SexpSyntaxError SexpEvaluationError UnboundSymbolError
    TaskError LimitExceeded ProviderError ConfigurationError"""
    assert set(fixed.split()) <= set(agentflow.__all__)
    errors = "RateLimited Overloaded IncompleteStream ConnectionLost FirstByteTimeout IdleTimeout ProtocolError PathDenied SessionBusy"
    assert set(errors.split()) <= set(agentflow.errors.__all__)


def succeeds(code: str) -> None:
    """Run code in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_agentflow_is_light() -> None:
    """`import agentflow` loads no SDK, no terminal library, and nothing else of the package; its names are looked up when used."""
    code = (
        "import sys; before = set(sys.modules); import agentflow\n"
        "heavy = {'anthropic', 'openai', 'rich', 'typer', 'mcp', 'prompt_toolkit', 'aiohttp', 'starlette', 'uvicorn', 'asyncpg'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "loaded = set(sys.modules) - before\n"
        "assert len(loaded) < 10 and not {'typing', 'asyncio'} & loaded, loaded\n"
        "from agentflow import AgentFlow\n"
        "heavy = {'anthropic', 'openai', 'rich', 'typer', 'mcp', 'prompt_toolkit', 'aiohttp', 'starlette', 'uvicorn', 'asyncpg'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    succeeds(code)


def test_the_mcp_sdk_is_loaded_for_a_server_only() -> None:
    """Neither a flow without servers, nor one that describes some and has not connected them, nor the command's help loads it."""
    code = (
        "import asyncio, sys\n"
        "from agentflow import AgentFlow\n"
        "from agentflow.mcp import McpHttp, McpStdio\n"
        "async def main():\n"
        "    async with AgentFlow(model='offline') as flow:\n"
        "        assert (await flow.run('(+ 1 2)')).value == 3\n"
        "    servers = [McpStdio('a', ['x']), McpHttp('b', 'https://example.com')]\n"
        "    await AgentFlow(model='offline', mcp=servers).aclose()\n"
        "asyncio.run(main())\n"
        "try:\n"
        "    from agentflow.cli import main as command\n"
        "    sys.argv = ['agentflow', '--help']\n"
        "    command()\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'mcp', 'mcp_types', 'starlette', 'uvicorn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    succeeds(code)


def test_the_help_of_the_command_loads_what_it_shows() -> None:
    """`agentflow --help` loads neither the models that check data nor the library's parts: half its time was theirs."""
    code = (
        "import sys\n"
        "from agentflow.cli import main as command\n"
        "try:\n"
        "    sys.argv = ['agentflow', '--help']\n"
        "    command()\n"
        "except SystemExit:\n"
        "    pass\n"
        "rooms = {'lang', 'tasks', 'memory', 'handler', 'providers', 'executors', 'observe', 'run', 'app'}\n"
        "heavy = ({'pydantic', 'rich', 'aiohttp'} | {f'agentflow.{room}' for room in rooms}) & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    succeeds(code)


RETIRED = {"made", "found", "given", "known", "place"}
"""Words that each stood for several things: a variable has the name of what it holds."""


def test_variables_are_named_for_what_they_hold() -> None:
    """No variable or parameter of the package is called ``made``, ``found``, ``given``, ``known`` or ``place``.

    Fields of classes are not variables: ``Exploration.found`` is read as a phrase.
    """
    root = Path(agentflow.__file__).parent
    wrong: list[str] = []
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        fields = {
            id(each.target)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for each in node.body
            if isinstance(each, ast.AnnAssign)
        }
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.MatchAs(name=str(name)):
                    if name in RETIRED and id(node) not in fields:
                        wrong.append(f"{path.relative_to(root)}:{node.lineno} {name}")
    assert wrong == []


def test_a_class_name_has_one_meaning() -> None:
    """No two classes of the package have one name, private ones included: whoever reads a name knows which class it is.

    A node of S-expressions and the node that it becomes may, until code is written from the latter alone.
    """
    homes: dict[str, list[str]] = {}
    root = Path(agentflow.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.M):
            homes.setdefault(name, []).append(str(path.relative_to(root)))
    assert len(homes) > 500, "the classes were found"
    trees = ["lang/ir.py", "lang/kernel/nodes.py"]
    assert not {name: files for name, files in homes.items() if len(files) > 1 and files != trees}


SAME_NOUN = {"connection", "errors", "events", "handle", "questions", "rows", "store"}
"""Files of one noun in two rooms: runs and durable runs, a store and its leaf, rows and what is stored of them."""


def test_a_file_name_has_one_meaning() -> None:
    """Two files of one name are a noun and its command, its public module, or its other half.

    The rooms of the language are left out until both surfaces share one syntax tree.
    """
    root = Path(agentflow.__file__).parent
    homes: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        room = path.parent.relative_to(root).as_posix()
        if path.name != "__init__.py" and room != "." and not room.startswith(("lang", "cli")):
            homes.setdefault(path.stem, set()).add(room)
    assert len(homes) > 200, "the files were found"
    assert {name for name, rooms in homes.items() if len(rooms) > 1} == SAME_NOUN


def test_private_modules_list_no_names() -> None:
    """An underscore says what is private; only modules that hosts import, and rooms' ``__init__``, list their names."""
    root = Path(agentflow.__file__).parent
    public = {"errors.py", "events.py", "media.py", "mcp.py", "workflow.py", "settings.py", "core/events/events.py"}
    listing = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.name != "__init__.py" and path.relative_to(root).parts[0] != "testing"
        if re.search(r"^__all__", path.read_text("utf-8"), re.M)
    ]
    assert set(listing) <= public, sorted(set(listing) - public)
