"""A port documents its methods: a class of the package that implements it does not say the same again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "agentflow"
DOCS = PACKAGE.parent / "docs"
SAME = 0.8
"""Share of a docstring's words, from which it says nothing that the port does not."""
_PLAIN = frozenset(
    [
        "the",
        "and",
        "for",
        "with",
        "which",
        "that",
        "this",
        "from",
        "one",
        "each",
        "all",
        "has",
        "have",
        "what",
        "who",
        "whom",
        "where",
        "when",
        "there",
        "than",
        "then",
        "also",
        "only",
        "does",
        "did",
        "was",
        "were",
        "been",
        "will",
        "would",
        "may",
        "can",
        "any",
        "every",
        "other",
        "none",
        "not",
        "are",
        "its",
    ]
)
_CODE = re.compile(r"``[a-z-]+/[a-z-]+``")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def words(text: str) -> list[str]:
    """The words that carry a meaning, by their first five letters, so that forms of one word are one."""
    return [word[:5] for word in re.findall(r"[a-z]{3,}", text.lower()) if word not in _PLAIN]


def parameters(function: Function) -> set[str]:
    """The names of a method's parameters, without the object's."""
    arguments = function.args
    return {each.arg for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs][1:]}


class Class:
    """A class of the package; ``known`` has all of them by name."""

    def __init__(self, path: Path, node: ast.ClassDef, known: dict[str, Class]) -> None:
        self.path, self.node, self.known = path, node, known
        named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
        self.bases = [ast.unparse(base).rpartition(".")[2] for base in named]
        self.is_port = "Protocol" in self.bases
        self.methods = {each.name: each for each in node.body if isinstance(each, Function)}

    def above(self) -> Iterator[Class]:
        """The classes of the package that this one is derived from."""
        for name in self.bases:
            if name in self.known and name != self.node.name:
                yield self.known[name]
                yield from self.known[name].above()

    @cached_property
    def members(self) -> dict[str, ast.AST]:
        """The members by name: methods, fields and what ``self`` is given, inherited ones too."""
        found: dict[str, ast.AST] = {}
        for each in [*reversed([*self.above()]), self]:
            for node in ast.walk(each.node):
                stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if stored and ast.unparse(node).startswith("self.") and isinstance(node.value, ast.Name):
                    found.setdefault(node.attr, node)
            for node in each.node.body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                found |= {target.id: node for target in targets if isinstance(target, ast.Name)}
            found |= each.methods
        return found

    def implements(self, port: Class) -> bool:
        """Whether it has the members of a port, and each method takes the parameters that the port's takes."""
        asked = {name: each for name, each in port.members.items() if not name.startswith("__")}
        if not asked or self.is_port or not asked.keys() <= self.members.keys():
            return False
        both = [(each, self.members[name]) for name, each in asked.items()]
        return all([
            parameters(theirs) <= parameters(own)
            for theirs, own in both
            if isinstance(theirs, Function) and isinstance(own, Function)
        ])  # fmt: skip


def classes() -> dict[str, Class]:
    """The classes of the package by name, of which no two have one."""
    known: dict[str, Class] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                known[node.name] = Class(path, node, known)
    return known


def restating(known: dict[str, Class]) -> list[str]:
    """The methods whose docstring, of one paragraph, says what that of a port or of the class above says."""
    pages = "\n".join([page.read_text("utf-8") for page in DOCS.rglob("*.md")])
    rendered = {known[name] for name in re.findall(r"^::: .*\.(\w+)$", pages, re.MULTILINE) if name in known}
    rendered |= {above for each in rendered for above in each.above()}
    ports = [each for each in known.values() if each.is_port]
    wrong: list[str] = []
    for each in known.values():
        if each in rendered:
            continue
        owners = [*each.above(), *[port for port in ports if each.implements(port)]]
        for name, method in each.methods.items():
            text = ast.get_docstring(method)
            if text is None or "\n\n" in text or name.startswith("__"):
                continue
            for owner in owners:
                theirs = owner.members.get(name) if owner.is_port else owner.methods.get(name)
                said = ast.get_docstring(theirs) if isinstance(theirs, Function) and theirs is not method else None
                if said is None or {*_CODE.findall(text)} - {*_CODE.findall(said)}:
                    continue
                told = {*words(said), *words(name.replace("_", " ")), *words(" ".join(parameters(method)))}
                own = words(text)
                if sum([word in told for word in own]) >= SAME * max(1, len(own)):
                    where = f"{each.path.relative_to(PACKAGE.parent)}:{method.lineno}"
                    wrong.append(f"{where}: {each.node.name}.{name} says what {owner.node.name} says")
                    break
    return wrong


def test_a_port_documents_its_methods() -> None:
    """An implementation adds a docstring where it says more than its port, or the documentation shows it."""
    known = classes()
    ports = [each for each in known.values() if each.is_port]
    assert len(ports) > 60, "the ports were found"
    assert sum([each.implements(port) for each in known.values() for port in ports]) > 100, "and their implementers"
    assert not (wrong := restating(known)), "remove the docstring, or say what is special:\n" + "\n".join(wrong)
