"""The pages lead somewhere: links resolve, and the glossary and the package comments name files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "tests/README.md", *(ROOT / "docs").rglob("*.md")])
PACKAGES = sorted(ROOT.glob("agentflow/**/__init__.py"))
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
MODULE = re.compile(r":mod:`~?agentflow\.([\w.]+)`")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_resolve(page: Path) -> None:
    """A relative link of a page points at something that is there."""
    broken = [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]
    assert not broken, broken


def test_the_glossary_names_files_that_exist() -> None:
    """Each file a glossary entry sends the reader to is there."""
    rooms = "|".join(path.parent.name for path in PACKAGES if path.parent.parent == ROOT / "agentflow")
    named = re.findall(rf"`((?:{rooms})/[\w./]*)`", (ROOT / "docs/glossary.md").read_text("utf-8"))
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / "agentflow" / name).exists()]


@pytest.mark.parametrize("package", PACKAGES, ids=relative)
def test_a_package_says_what_it_is_for(package: Path) -> None:
    """Every package has a comment, and the modules it sends the reader to are there."""
    comment = ast.get_docstring(ast.parse(package.read_text("utf-8")))
    assert comment, f"{relative(package)} has no docstring"
    for name in MODULE.findall(comment):
        target = ROOT / "agentflow" / name.replace(".", "/")
        assert target.is_dir() or target.with_suffix(".py").exists(), f"{relative(package)} names {name}"


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("*.svg")), ids=relative)
def test_a_picture_is_for_everybody(picture: Path) -> None:
    """A picture is well-formed, says in words what it shows, has colours for light and dark pages, and loads nothing."""
    text = picture.read_text("utf-8")
    root = ElementTree.fromstring(text)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} <= names and not names & {"script", "image", "foreignObject"}
    assert "prefers-color-scheme:dark" in text
    assert f"docs/{picture.name}" in (ROOT / "README.md").read_text("utf-8")


def test_the_page_of_the_house_is_true() -> None:
    """The architecture page names every room of the package, and every path that it names exists."""
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    named = {
        path for path in re.findall(r"`([a-z_]+/[\w/.]*|\w+\.py)`", page) if not path.startswith(("tests/", "docs/"))
    }
    package = ROOT / "agentflow"
    assert not [path for path in named if not (package / path).exists()]
    rooms = {path.parent.relative_to(package) for path in package.rglob("*.py")} - {Path(".")}
    assert not {f"{room}/" for room in rooms} - named


def test_each_object_of_the_api_page_exists() -> None:
    """The site's build fails at a name that has moved; it is found here first."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    missing: list[str] = []
    names = re.findall(r"^::: (\S+)", page, re.M)
    for name in names:
        module, _, own = name.rpartition(".")
        file = ROOT / f"{module.replace('.', '/')}.py"
        text = file.read_text("utf-8") if file.exists() else ""
        if not re.search(rf"^\s*(?:class|def|async def) {own}\b|^\s*{own}\b[^=\n]*[:=]", text, re.M):
            missing.append(name)
    assert len(names) > 10 and not missing


def test_a_change_is_listed_once() -> None:
    """Lines that two branches add are both kept when they are merged: no entry of the changelog begins as another one does."""
    entries = [line[:60] for line in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines() if line.startswith("- ")]
    assert len(entries) > 50, "the entries were found"
    assert not {each for each in entries if entries.count(each) > 1}
