"""The ignore rules agree with git, and take time linear in what they read."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from agentflow.memory.rules import GitIgnore, IgnoreRules
from tests.support.spending import at_most

_NAMES = ("a", "b", "ab", "src", "build", "x.py", "y.pyc", "a b", "[x]", "é", "a-b", "#a", "!a", "b\\c", "a\tb", "ab ")
_PIECES = (
    "*", "**", "?", "a", "b", "ab", ".py", "[ab]", "[!a]", "[a-z]", "[[:alpha:]]", "[]x]", "\\*", "\\ ", " ", "\t", "/",
    "src", "build", "[", "\\", "x", "[^b]", "[a-]", "#", "!", "é", "[[:nope:]]", "[\\]]", "[b-a]", "***",
)  # fmt: skip
_WHOLE = (
    "*", "!*/", "!*.py", "build/", "!src/", "/src", "src/*", "!src/a", "**/a", "a/**", "a/**/b", "src/**/x.py", "*.py[co]",
    "foo**/a", "a**/b", "ab\\", "*/", "/", "!", "//", "a//b", "\\!a", "\\#a", "# a", "a ", "a\\ ", "ab\t", "**", "/**", "**/",
)  # fmt: skip


def _pattern(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(_WHOLE)
    return "".join(chance.choice(_PIECES) for _ in range(chance.randint(1, 5)))


def _tree(chance: random.Random) -> dict[str, bool]:
    """Random paths, each with whether it is a directory."""
    tree: dict[str, bool] = {}
    directories = [""]
    for _ in range(chance.randint(3, 14)):
        parent = chance.choice(directories)
        name = chance.choice(_NAMES)
        path = f"{parent}/{name}" if parent else name
        if path in tree:
            continue
        tree[path] = chance.random() < 0.45 and path.count("/") < 3
        if tree[path]:
            directories.append(path)
    return tree


def _ours(tree: dict[str, bool], files: dict[str, str]) -> set[str]:
    """What the rules leave out, walking as the index does: nothing below an ignored directory is looked at."""
    ignored: set[str] = set()
    rules = {"": IgnoreRules().extended("", files[""]) if "" in files else IgnoreRules()}
    for path in sorted(tree, key=lambda each: each.count("/")):
        parent = path.rpartition("/")[0]
        if parent in ignored:
            ignored.add(path)
            continue
        local = rules[parent]
        if local.ignored(path, tree[path]):
            ignored.add(path)
        elif tree[path]:
            rules[path] = local.extended(path, files[path]) if path in files else local
    return ignored


def _compare(seeds: range, tmp_path: Path) -> None:
    repository = tmp_path / "all"
    repository.mkdir()
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    cases: list[tuple[int, dict[str, bool], dict[str, str]]] = []
    asked: list[str] = []
    for seed in seeds:
        chance = random.Random(seed)
        tree = _tree(chance)
        directories = ["", *[path for path, is_directory in tree.items() if is_directory]]
        files = {
            directory: "\n".join(_pattern(chance) for _ in range(chance.randint(1, 5))) + "\n"
            for directory in directories
            if directory == "" or chance.random() < 0.25
        }
        top = repository / f"t{seed}"
        top.mkdir()
        for path, is_directory in sorted(tree.items()):
            if is_directory:
                (top / path).mkdir(parents=True, exist_ok=True)
            else:
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_text("")
        for directory, text in files.items():
            (top / directory / ".gitignore").write_text(text)
        cases.append((seed, tree, files))
        asked += [f"t{seed}/{path}" for path in tree]
    ended = subprocess.run(
        ["git", "check-ignore", "--stdin", "-z", "--no-index"],
        cwd=repository,
        input="\0".join(asked).encode(),
        capture_output=True,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stderr
    theirs = set(ended.stdout.decode().split("\0"))
    wrong: list[str] = []
    for seed, tree, files in cases:
        ours = _ours(tree, files)
        for path in tree:
            if (path in ours) != (f"t{seed}/{path}" in theirs):
                wrong.append(f"seed {seed}: {path!r}: ours {path in ours}; files {files}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:8])


def test_the_rules_agree_with_git(tmp_path: Path) -> None:
    """What 600 random trees with random ignore files leave out is what ``git check-ignore`` leaves out."""
    _compare(range(600), tmp_path)


@pytest.mark.parametrize(
    ("text", "path", "directory", "expected"),
    [
        ("*\n!*/\n!*.py\n", "src/x.py", False, False),
        ("*\n!*/\n!*.py\n", "src", True, False),
        ("*\n!*/\n!*.py\n", "src/x.txt", False, True),
        ("build/\n!src/\n", "build", True, True),
        ("build/\n", "build", False, None),
        ("a\t\n", "a", False, None),
        ("a  \n", "a", False, True),
        ("a\\ \n", "a ", False, True),
        ("[[:digit:]]x\n", "7x", False, True),
        ("[\n", "[", False, None),
        ("?\n", "é", False, None),
    ],
)
def test_a_rule_of_the_format(text: str, path: str, directory: bool, expected: bool | None) -> None:
    """Classes, re-inclusion, directories only, trailing blanks: the last pattern that matches decides."""
    assert GitIgnore(text).verdict(path, directory) is expected


@pytest.mark.parametrize("count", [0, 99, 100, 101, 300])
def test_any_number_of_patterns_is_tried(count: int) -> None:
    """The last one that matches decides, whether they are few enough to be tried as one first or not."""
    rules = GitIgnore("".join(f"x{n}?\n" for n in range(count)) + "!y?\n")
    assert [rules.verdict(f"x{n}z", False) for n in range(count)] == [True] * count
    assert (rules.verdict("yz", False), rules.verdict("z", False)) == (False, None)


@pytest.mark.parametrize("pattern", ["*a" * 120, "**/" * 120 + "b", "*/" * 60 + "b", "[a-z]*" * 150, "a*" * 100 + "/b"])
def test_stars_are_matched_in_linear_time(pattern: str) -> None:
    """No pattern makes matching go back over what it has read: a hundred stars cost milliseconds."""
    rules = GitIgnore(f"{pattern}\n" * 3)
    names = ["a" * 250, "/".join(["a" * 30] * 60), "/".join("a" * 120)]
    with at_most(0.3):
        for name in names:
            rules.verdict(name, False)
