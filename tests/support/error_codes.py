"""Every error and warning code in the source, with the messages and hints it is raised with.

``python -m tests.support.error_codes`` drafts rows for ``docs/errors.md`` for the codes that have none yet; with
``--write`` it puts them into the page, to be read over.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentflow.core.data.errors import AgentflowError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "errors.md"
_CODE = re.compile(r"[a-z][a-z-]*/[a-z][a-z-]*")
_ROW = re.compile(r"^\| `([a-z-]+/[a-z-]+)` \|", re.MULTILINE)


@dataclass
class Raised:
    """A code and where it is raised: ``places`` as file:line, ``messages`` and ``hints`` as they are written there."""

    code: str
    places: list[str] = field(default_factory=list[str])
    messages: list[str] = field(default_factory=list[str])
    hints: list[str] = field(default_factory=list[str])


def documented() -> list[str]:
    """The codes that have a row in ``docs/errors.md``."""
    return _ROW.findall(PAGE.read_text("utf-8")) if PAGE.exists() else []


def raised() -> dict[str, Raised]:
    """All codes of the package, sorted."""
    found: dict[str, Raised] = {}
    literals: list[tuple[str, str, ast.Call | None]] = []
    families: set[str] = {code.partition("/")[0] for code in documented()}
    for path in sorted((ROOT / "agentflow").rglob("*.py")):
        for code, node, sure in _codes(ast.parse(path.read_text("utf-8"))):
            if sure:
                families.add(code.partition("/")[0])
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            literals.append((code, place, node if isinstance(node, ast.Call) else None))
    for code, place, call in literals:
        if code.partition("/")[0] not in families:
            continue
        entry = found.setdefault(code, Raised(code))
        entry.places.append(place)
        if call is not None:
            texts = [_text(each) for each in call.args]
            after = texts[texts.index(code) + 1 :] if code in texts else texts
            entry.messages += [text for text in after if " " in text][:1]
            entry.hints += [_text(each.value) for each in call.keywords if each.arg == "hint"]
            entry.hints += after[1:2] if code in texts else []
    return dict(sorted(found.items()))


def _codes(tree: ast.AST) -> Iterator[tuple[str, ast.AST, bool]]:
    """Codes with their node, and whether the place leaves no doubt that it is one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                for value in _strings(keyword.value):
                    if keyword.arg == "code" and _CODE.fullmatch(value):
                        yield value, node, True
                if keyword.arg == "limit" and _name(node.func) == "LimitExceeded" and not _has_code(node):
                    for value in _strings(keyword.value):
                        yield f"limits/{value.removesuffix('_s').replace('_', '-')}", node, True
            for argument in node.args:
                text = argument.value if isinstance(argument, ast.Constant) else None
                if isinstance(text, str) and _CODE.fullmatch(text):
                    yield text, node, _name(node.func) in ("error", "_error", "warn")
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if _name(target) == "default_code" and node.value is not None:
                for value in _strings(node.value):
                    yield value, node, True


def _has_code(call: ast.Call) -> bool:
    return any(keyword.arg == "code" for keyword in call.keywords)


def _strings(node: ast.AST) -> list[str]:
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST) -> str:
    """A string expression as it reads, with ``...`` where values go."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) if isinstance(each, ast.Constant) else "..." for each in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return _text(node.body)
    return ""


def draft(entry: Raised) -> str:
    """A row of the page for a code, from what its places and its class say."""
    cause = next(iter(entry.messages), "") or _class_text(AgentflowError, entry.code)
    fix = next((hint for hint in entry.hints if hint), "")
    cells = [" ".join(text.replace("|", "\\|").split()) for text in (cause or "TODO", fix)]
    return f"| `{entry.code}` | {cells[0]} | {cells[1]} |"


def _class_text(kind: type[AgentflowError], code: str) -> str:
    """The first paragraph of the documentation of the error class that has this code."""
    if kind.default_code == code:
        return (kind.__doc__ or "").partition("\n\n")[0]
    return next((text for each in kind.__subclasses__() if (text := _class_text(each, code))), "")


def with_rows(page: str, rows: dict[str, str]) -> str:
    """The page with a row added for each code, in its family's table; a new family gets a section at the end."""
    for code, row in sorted(rows.items()):
        heading = f"## {code.partition('/')[0]}\n"
        at = page.find(heading)
        if at < 0:
            page = page.rstrip("\n") + f"\n\n{heading}\n| code | cause | fix |\n|---|---|---|\n{row}\n"
            continue
        end = page.find("\n## ", at)
        end = len(page) if end < 0 else end
        section = page[at:end].rstrip("\n") + f"\n{row}\n"
        page = page[:at] + section + page[end:]
    return page


if __name__ == "__main__":
    listed = set(documented())
    missing = {code: draft(entry) for code, entry in raised().items() if code not in listed}
    print("\n".join(missing.values()))
    if "--write" in sys.argv:
        PAGE.write_text(with_rows(PAGE.read_text("utf-8"), missing), "utf-8")
