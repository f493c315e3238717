"""Builds the documentation site: ``uv run --isolated --only-group docs python .ci/build_site.py [DIRECTORY]``.

Pages are written for readers of the repository, so they stand in several directories and link to files as these stand there.
Here they are laid out as the site has them, with their links, and then built strictly: a broken link or reference fails.
Beside the pages the site has their Markdown, ``llms.txt`` that lists it, and ``llms-full.txt`` that is all of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = ROOT / ".ci" / "zensical.toml"
_LINK = re.compile(r"(\]\()((?!https?:|mailto:|#)[^)#\s]+)")
_ASKS = re.compile(r"<(?:link|script|img|iframe)[^>]*(?:href|src)=[\"']?(?:https?:)?//")
_FENCE = re.compile(r"^(```.*?^```)", re.M | re.S)


def pages() -> dict[Path, str]:
    """The files of the site: their paths in the repository, and where each stands in the site."""
    places = {path: path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.*")}
    places |= {path: f"manual/{path.name}" for path in (ROOT / "tests/spec").glob("*.md")}
    examples = [path for pattern in ("*.*", "texts/*.py") for path in (ROOT / "examples").glob(pattern)]
    places |= {path: path.relative_to(ROOT).as_posix() for path in examples}
    places[ROOT / "tests/README.md"] = "tests.md"
    return {path: re.sub(r"README\.md$", "index.md", place) for path, place in places.items()}


def nav() -> Iterator[tuple[str, str, str]]:
    """The pages that the site lists: section (empty at the top), title and place."""

    def entries(items: list[Any], section: str) -> Iterator[tuple[str, str, str]]:
        for item in items:
            for title, inner in item.items():
                if isinstance(inner, str):
                    yield section, title, inner
                else:
                    yield from entries(inner, title)

    yield from entries(tomllib.loads(CONFIGURATION.read_text("utf-8"))["project"]["nav"], "")


def lay_out(directory: Path) -> list[str]:
    """Write the site's sources below ``directory``, with their links as they are there. Gives links that lead nowhere."""
    places, lost = pages(), list[str]()
    for path, place in places.items():
        target = directory / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, target)
            continue

        def moved(link: re.Match[str], path: Path = path, place: str = place) -> str:
            leads_to = Path(os.path.normpath(path.parent / link[2]))
            there = places.get(leads_to / "README.md" if leads_to.is_dir() else leads_to)
            if there is None:
                lost.append(f"{path.relative_to(ROOT)}: {link[2]}")
                return link[0]
            return link[1] + os.path.relpath(there, os.path.dirname(place) or ".")

        parts = _FENCE.split(path.read_text("utf-8"))
        target.write_text(
            "".join(part if part.startswith("```") else _LINK.sub(moved, part) for part in parts), "utf-8"
        )
    return lost


def llms_txt(directory: Path) -> str:
    """What the site has for readers that are models: each page's Markdown, with its first sentence."""
    project = tomllib.loads(CONFIGURATION.read_text("utf-8"))["project"]
    text, before = f"# {project['site_name']}\n\n> {project['site_description']}\n\n", ""
    for section, title, place in nav():
        if section != before:
            text, before = f"{text}\n## {section}\n\n", section
        prose = re.sub(r"```.*?```|<!--.*?-->", "", (directory / place).read_text("utf-8"), flags=re.S)
        paragraphs = (" ".join(paragraph.split()) for paragraph in prose.split("\n\n"))
        first = next((each for each in paragraphs if re.match(r"[A-Z`]", each)), "")
        sentence = re.split(r"(?<=[.:])\s", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", first), maxsplit=1)[0]
        text += f"- [{title}]({place}){f': {sentence}' if sentence else ''}\n"
    return text


def build(site: Path) -> None:
    """Build the site strictly. Raises SystemExit if anything in it leads nowhere."""
    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch) / "docs"
        if lost := lay_out(sources):
            raise SystemExit("links that lead nowhere:\n" + "\n".join(lost))
        configuration = CONFIGURATION.read_text("utf-8").replace('paths = ["."]', f"paths = [{str(ROOT)!r}]")
        (Path(scratch) / "zensical.toml").write_text(configuration, "utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(Path(scratch) / "zensical.toml")]
        subprocess.run(command, check=True, cwd=scratch)
        built = Path(scratch) / "site"
        if foreign := [
            str(page.relative_to(built)) for page in built.rglob("*.html") if _ASKS.search(page.read_text("utf-8"))
        ]:
            raise SystemExit("pages that load something from another server:\n" + "\n".join(foreign))
        for page in sources.rglob("*.md"):
            copy = built / page.relative_to(sources)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, copy)
        (built / "llms.txt").write_text(llms_txt(sources), "utf-8")
        whole = [f"<!-- {place} -->\n\n{(sources / place).read_text('utf-8')}" for _, _, place in nav()]
        (built / "llms-full.txt").write_text("\n\n".join(whole), "utf-8")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(built, site)


if __name__ == "__main__":
    build(Path(sys.argv[1] if sys.argv[1:] else ROOT / "build/site"))
