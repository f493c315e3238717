"""The shape of the house, as tests: imports point downward only, and siblings do not know each other."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "agentflow"
LEVELS = {
    "core": 0,
    "lib": 0,
    "lang": 1,
    "tasks": 1,
    "memory": 1,
    "handler": 1,
    "providers": 1,
    "executors": 1,
    "observe": 1,
    "journal": 1,
    "connect": 1,
    "run": 2,
    "durable": 2.2,
    "flow": 2.4,
    "exploration": 3,
    "evals": 3,
    "spec": 3,
    "settings": 2,
    "file_rules": 1.5,  # what settings are made of, from rooms of the first level
    "arguments": 4,
    "app": 4,
    "errors": 1,
    "events": 1,
    "media": 1,
    "mcp": 2,
    "workflow": 0,
    "testing": 5,
    "cli": 5,
    "lsp": 5,
    "serve": 5,
    "__init__": 6,
    "__main__": 6,
}

SUB_ROOMS = {  # the rooms in a room, lowest first; "" is the room itself
    "core": ("data", "events", "call", "ports", ""),
    "lib": ("text", "schema", ""),
    "providers": ("dialects", ""),
    "run": ("strand", "bounds", "policy", ""),
    "durable": ("values", ""),
    "cli": ("shared", "run", "runs", "check", "admin", ""),
}
MOST_FILES = 35


@functools.cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The imports of a file, deferred ones too. Three rules read them, and parsing the package takes seconds."""
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported_by_name(path: Path) -> list[str]:
    """The modules of the package that a file imports later, by a text that names them."""
    names: list[str] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if called in ("loaded", "import_module", "to_thread"):
                names += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    return [name for name in names if name.startswith("agentflow.")]


def imports(path: Path) -> set[str]:
    """The agentflow rooms a file imports, deferred and type-checking imports included, and those by name."""
    rooms = {name.split(".")[1] for name in imported_by_name(path)}
    for node in import_statements(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module or ""]
            if node.module == "agentflow":
                names = [f"agentflow.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("agentflow.")}
    return rooms


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def test_imports_point_downward_and_siblings_do_not_meet() -> None:
    """A file imports its own room and rooms of lower levels, nothing else."""
    wrong: list[str] = []
    for path in sorted(ROOT.rglob("*.py")):
        room = room_of(path)
        level = LEVELS[room]
        for other in sorted(imports(path) - {room}):
            if room != "__init__" and not (
                (room, other) == ("lib", "core")
                or LEVELS.get(other, 0) < level
                or (level >= 4 and LEVELS.get(other, 9) <= level)
            ):
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong, "\n".join(wrong)


def modules() -> dict[str, set[str]]:
    """Every module of the package with the modules it imports, deferred and type-checking imports included."""
    files = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        graph[name] = set()
        for node in import_statements(path):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names if alias.name in files}
            elif node.module in files:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {each if each in files else node.module for each in inner}
        graph[name].discard(name)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """What is left when modules that import none of the rest, or that none of the rest imports, are taken away."""
    left = {name: set(others) for name, others in graph.items()}
    while True:
        imported = set().union(*left.values())
        free = {name for name, others in left.items() if not others or name not in imported}
        if not free:
            break
        left = {name: others - free for name, others in left.items() if name not in free}
    return [others | {name} for name, others in left.items()]


def test_no_file_imports_itself_through_others() -> None:
    """Inside rooms too, imports have one direction: no cycle of files, whether deferred or for typing only."""
    graph = modules()
    assert len(graph) > 100, "the package was found"
    assert cycles(graph) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) != [], "a cycle would be seen"


def test_the_rooms_of_a_room_have_an_order() -> None:
    """Inside a room with rooms imports point downward too: a sub-room imports those below it only."""
    wrong: list[str] = []
    for name, others in modules().items():
        for other in others:
            above, below = sub_room(name), sub_room(other)
            if above and below and above[0] == below[0]:
                order = SUB_ROOMS[above[0]]
                if order.index(below[1]) > order.index(above[1]):
                    wrong.append(f"{name} imports {other}")
    assert not wrong, "\n".join(wrong)


def sub_room(module: str) -> tuple[str, str] | None:
    """The room with rooms that a module is in, and which of them; None for a module of a room that has none, and for ``__init__``."""
    room, *inner = module.removeprefix("agentflow.").split(".")
    if room not in SUB_ROOMS or not inner or (ROOT / room / "/".join(inner)).is_dir():
        return None
    return room, inner[0] if len(inner) > 1 else ""


def folders() -> dict[str, list[Path]]:
    """Every folder of the package with its files."""
    inner = [path.parent for path in ROOT.rglob("*.py")]
    return {str(folder.relative_to(ROOT)): sorted(folder.glob("*.py")) for folder in sorted(set(inner))}


def test_a_folder_can_be_looked_over() -> None:
    """At most 35 files in a folder, and one of more than 15 says in its ``__init__`` in which order to read it."""
    for folder, files in folders().items():
        assert len(files) <= MOST_FILES, f"{folder} has {len(files)} files: make rooms in it"
        if len(files) > 15:
            text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text("utf-8"))) or ""
            said = {word for word in re.findall(r"``(\w+)``", text) if (ROOT / folder / f"{word}.py").exists()}
            assert "Read" in text and len(said) >= 3, (
                f"{folder}/__init__.py does not say in which order to read its {len(files)} files"
            )


def test_a_room_names_files_that_it_has() -> None:
    """The files that a room's docstring says to read are there: a merge or a move takes the text along."""
    gone = [
        f"{room.relative_to(ROOT)}: {word}"
        for room in ROOT.rglob("__init__.py")
        for text in [ast.get_docstring(ast.parse(room.read_text("utf-8"))) or ""]
        for word in re.findall(r"``([a-z_]+)``", text.partition("Read ")[2])
        if not {f"{word}.py", word} & {each.name for each in [*room.parent.iterdir(), *ROOT.iterdir()]}
    ]
    assert not gone, gone


def test_every_room_has_a_level() -> None:
    """A new top-level module or package has to be given its place in the house."""
    rooms = {path.stem if path.is_file() else path.name for path in ROOT.iterdir() if not path.name.startswith("__pyc")}
    assert rooms - {"py"} <= set(LEVELS), rooms - set(LEVELS)


def test_lang_does_no_io() -> None:
    """The language is a pure library: text in, code object out; no event loop, no files, no network."""
    forbidden = {"asyncio", "anyio", "socket", "subprocess", "pathlib", "aiofiles", "httpx", "os"}
    wrong = []
    for path in sorted((ROOT / "lang").rglob("*.py")):
        for node in import_statements(path):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            wrong += [f"{path.name}: {name}" for name in names if name.split(".")[0] in forbidden]
    assert not wrong, wrong


def test_nobody_uses_private_members_of_another_class() -> None:
    """The type checker looks for them everywhere: no file and no line is excepted but for CPython's own ``sys._getframe``."""
    excepted = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted(ROOT.rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if "reportPrivateUsage" in line and "sys._getframe(" not in line
    ]
    assert not excepted, "\n".join(excepted)
