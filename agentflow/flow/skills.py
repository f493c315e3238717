"""Skills: folders with instructions for a certain work, in the format of Agent Skills, as one tool of a task.

The model reads the name and the description of each skill in its system prompt. It reads the instructions, and the other
files of a skill, with the tool ``read_skill``. All texts are read when the skills are declared, so that they are those of
the task's content; the tool answers from memory, and neither opens nor runs a file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, ConfigurationError, FileFailure, PathDenied, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ToolSpec
from agentflow.core.ports.ports import Tool
from agentflow.executors.file_access import FileAccessManager
from agentflow.lib.file_writer import name_text
from agentflow.lib.text.safe_text import clean, shown
from agentflow.lib.text.suggest import did_you_mean

SKILL_FILE = "SKILL.md"
READ_SKILL = "read_skill"
"""The name of the tool by which a model reads skills."""
MAX_SKILL_FILE = 256_000
"""Bytes of the largest file of a skill that a model may read."""
MAX_SKILL_TEXT = 16_000_000
"""Bytes of all texts of the skills of one directory."""
MAX_SKILL_FILES = 1_000
MAX_SKILLS = 200
_DEEPEST = 8
_SKIPPED = frozenset({".git", "__pycache__", "node_modules"})
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ENTRY = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*)|)")
_QUOTED = re.compile(r"""('(?:[^']|'')*'|"(?:[^"\\]|\\.)*")(?:\s+#.*)?""")
_NO_TEXT = tuple("'\"[]{}&*!|>%@`,")
"""What no plain text of YAML begins with."""
_READ = frozenset({"name", "description", "compatibility"})
_MOST_LISTED = 100
_INTRODUCTION = (
    f"Skills are instructions for certain kinds of work. If the work fits one of these, call {READ_SKILL} with its name "
    "before you begin, and follow the instructions:"
)


@frozen(kw_only=True)
class Skill:
    """A skill: its ``name`` and ``description``, its instructions, and its files by their path in its ``folder``.

    A file is its text, or the number of its bytes where a model cannot read it: one that is not text in UTF-8, or is too large.
    """

    name: str
    description: str
    instructions: str
    requires: str
    files: Mapping[str, str | int]
    folder: str


class SkillReader:
    """Reads directories of skills, and each again once it has changed.

    ``readable`` are the directories that commands may read, the first is the one where they run: a model is told the folder of
    a skill that lies in one of them.
    """

    def __init__(self, readable: Sequence[str]) -> None:
        self._readable = tuple(readable)
        self._tools: dict[tuple[str, ...], tuple[Tool, Mapping[str, object]]] = {}

    def tool(self, listed: object, where: str) -> Tool | None:
        """The tool that reads the skills of these directories; None without any. Blocking.

        ``where`` names the list in errors. Raises ConfigurationError (``config/skill``).
        """
        directories = _directories(listed, where)
        before = self._tools.get(tuple(directories))
        if before is not None and all([_stamp(path) == stamp for path, stamp in before[1].items()]):
            return before[0]
        skills: dict[str, Skill] = {}
        for directory in directories:
            for skill in _read(directory):
                other = skills.setdefault(skill.name, skill)
                if other.folder != skill.folder:
                    raise _wrong(
                        f"{where}: two skills are called '{skill.name}': {shown(other.folder)} and {shown(skill.folder)}",
                        "rename one of the folders, and the name in its SKILL.md",
                    )
        if not skills:
            return None
        tool = _tool([skills[name] for name in sorted(skills)], self._readable)
        paths = {*directories}.union(*map(_paths, skills.values()))
        self._tools[tuple(directories)] = tool, {path: _stamp(path) for path in paths}
        return tool


def _paths(skill: Skill) -> Iterator[str]:
    """The files and folders of a skill."""
    for name in (SKILL_FILE, *skill.files):
        while name:
            yield os.path.join(skill.folder, name)
            name = os.path.dirname(name)
    yield skill.folder


def _stamp(path: str) -> object:
    """Another object after a change of a file or folder."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _directories(listed: object, where: str) -> list[str]:
    items = cast(object, [listed] if isinstance(listed, str | os.PathLike) else listed)
    if not isinstance(items, Sequence):
        raise _wrong(
            f"{where}: skills={clip(repr(items), 120)} is not a list of directories",
            "name directories: skills=['skills']",
        )
    directories: list[str] = []
    for each in cast("Sequence[object]", items):
        if not isinstance(each, str | os.PathLike):
            raise _wrong(
                f"{where}: skills= holds {clip(repr(each), 120)}, which is not the path of a directory",
                "name directories: skills=['skills']",
            )
        path = os.path.abspath(os.path.expanduser(cast("str | os.PathLike[str]", each)))
        if os.path.basename(path) == SKILL_FILE:
            raise _wrong(
                f"{where}: skills= names the file {shown(path)}",
                f"name the folder of the skill: {shown(os.path.dirname(path))}",
            )
        if not os.path.isdir(path):
            why = "is not a directory" if os.path.exists(path) else "does not exist"
            raise _wrong(
                f"{where}: the directory of skills {shown(path)} {why}",
                "a relative path starts at the working directory of the process",
            )
        directories.append(path)
    return directories


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="config/skill", hint=hint)


# -- reading --------------------------------------------------------------------------------------------------------


def _read(directory: str) -> list[Skill]:
    """The skills in ``directory``: its own one, or those in the folders below it."""
    with FileAccessManager(directory, max_bytes=MAX_SKILL_FILE, writable=False) as files:
        names = files.list_now(".")
        if SKILL_FILE in names:
            return [_skill(files, "", os.path.basename(directory), directory)]
        folders = [each for each in names if each not in _SKIPPED and _is_skill(files, each, directory)]
        if not folders:
            raise _wrong(
                f"{shown(directory)} holds no skill",
                f"a skill is a folder with a file {SKILL_FILE}: {shown(os.path.join(directory, 'NAME', SKILL_FILE))}",
            )
        if len(folders) > MAX_SKILLS:
            raise _wrong(
                f"{shown(directory)} holds {len(folders)} skills, the maximum is {MAX_SKILLS}",
                "give the task those directories that it needs",
            )
        skills = [_skill(files, f"{each}/", each, os.path.join(directory, each)) for each in folders]
    size = sum([len(text) for skill in skills for text in skill.files.values() if isinstance(text, str)])
    if size > MAX_SKILL_TEXT:
        raise _wrong(
            f"the skills in {shown(directory)} hold {size:,} characters, the maximum is {MAX_SKILL_TEXT:,}",
            "move data out of the folders of skills",
        )
    return skills


def _is_skill(files: FileAccessManager, folder: str, directory: str) -> bool:
    try:
        return files.is_file_now(f"{folder}/{SKILL_FILE}")
    except PathDenied as error:
        if error.code != "files/outside":  # a protected name
            return False
        path = os.path.join(directory, folder)
        raise _wrong(
            f"{shown(path)} is a link that leads outside of {shown(directory)}",
            f"name its target too: skills=[..., {shown(os.path.realpath(path))}]",
        ) from error


def _skill(files: FileAccessManager, at: str, folder: str, path: str) -> Skill:
    file = os.path.join(path, SKILL_FILE)
    try:
        text = files.read_now(f"{at}{SKILL_FILE}").text
    except AgentflowError as error:
        raise _wrong(f"{shown(file)} cannot be read: {error.message}", error.hint or "write a text in UTF-8") from error
    fields, instructions = _front_matter(text, shown(file))
    name, description = fields.get("name", ""), " ".join(fields.get("description", "").split())
    if len(name) > 64 or _NAME.fullmatch(name) is None:
        raise _wrong(
            f"{shown(file)}: the name {clip(repr(name), 80)} is not valid" if name else f"{shown(file)} has no name",
            f"write at its beginning, between two lines ---, name: {folder}; at most 64 of a-z, 0-9 and single hyphens",
        )
    if name != folder:
        raise _wrong(
            f"{shown(file)}: the skill is called '{name}', and its folder '{clip(shown(folder), 80)}'",
            "a skill has the name of its folder: rename one of them",
        )
    if not 0 < len(description) <= 1_024:
        raise _wrong(
            f"{shown(file)} has a description of {len(description):,} characters"
            if description
            else f"{shown(file)} has no description",
            "write what the skill does and when to use it: description: Fills PDF forms. Use it for ...; at most 1,024 characters",
        )
    return Skill(
        name=name,
        description=clean(description),
        instructions=instructions,
        requires=fields.get("compatibility", ""),
        files=dict(sorted(_files(files, at, path))),
        folder=path,
    )


def _front_matter(text: str, file: str) -> tuple[dict[str, str], str]:
    """The fields at the beginning of a SKILL.md, and the text after them. Raises ConfigurationError.

    The fields are YAML. Those that a model reads are texts: plain, quoted, and blocks of several lines; the values of all others are
    skipped. A plain text may hold a colon, as in many published skills, where YAML refuses it.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    ends = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if not lines or lines[0].rstrip() != "---" or ends is None:
        missing = (
            "does not begin with a line ---" if not lines or lines[0].rstrip() != "---" else "has no second line ---"
        )
        raise _wrong(f"{file} {missing}", "begin it with ---, then name: and description:, then --- again")
    fields: dict[str, str] = {}
    number = 1
    while number < ends:
        line = lines[number]
        number += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = _ENTRY.fullmatch(line.rstrip())
        if entry is None:
            raise _wrong(f"{file}, line {number}: {clip(line, 80)!r} is not a field", "write NAME: VALUE")
        first = number
        while number < ends and (not lines[number].strip() or lines[number][:1] in " \t" or lines[number][:2] == "- "):
            number += 1
        if entry[1] in fields:
            raise _wrong(f"{file}, line {first}: '{entry[1]}' is there twice", "leave one of them")
        try:
            fields[entry[1]] = _value(entry[2] or "", lines[first:number]) if entry[1] in _READ else ""
        except ValueError:
            raise _wrong(
                f"{file}, line {first}: the value of '{entry[1]}' is not a text", "write it without quotes, on one line"
            ) from None
    return fields, "\n".join(lines[ends + 1 :]).strip()


def _value(first: str, more: Sequence[str]) -> str:
    """A text of YAML from the line of its field and those below it. Raises ValueError for a value of another kind."""
    first = first.strip()
    if first[:1] in ("|", ">") and first[1:].strip("+-0123456789 ") == "":
        depth = min([len(line) - len(line.lstrip()) for line in more if line.strip()], default=0)
        lines = [line[depth:].rstrip() for line in more]
        return ("\n" if first[0] == "|" else " ").join(lines).strip()
    text = " ".join([first, *[line.strip() for line in more if line.strip()]]).strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        inner = quoted[1]
        return inner[1:-1].replace("''", "'") if inner[0] == "'" else str(json.loads(inner, strict=False))
    if text[:1] in _NO_TEXT:
        raise ValueError(text)
    return "" if text[:1] == "#" else text.partition(" #")[0].rstrip()


def _files(files: FileAccessManager, at: str, path: str) -> Iterator[tuple[str, str | int]]:
    """The files of a skill but for its SKILL.md, by the rules of the file tools: without protected ones, and without those
    that links outside lead to."""
    pending, seen = [("", 0)], 0
    while pending:
        folder, depth = pending.pop()
        for name in files.list_now(f"{at}{folder}" or "."):
            inner = f"{folder}{name}"
            seen += 1
            if seen > MAX_SKILL_FILES or depth > _DEEPEST:
                raise _wrong(
                    f"the skill in {shown(path)} has more than {MAX_SKILL_FILES} files, or folders more than {_DEEPEST} deep",
                    "move what the model does not read out of it",
                )
            if inner == SKILL_FILE or name in _SKIPPED:
                continue
            full = os.path.join(path, inner)
            if os.path.isdir(full):
                if not os.path.islink(full):
                    pending.append((f"{inner}/", depth + 1))
                continue
            try:
                read = files.read_now(f"{at}{inner}")
            except FileFailure as error:
                if error.code in ("files/too-large", "files/encoding"):
                    yield inner, os.path.getsize(full)
            except AgentflowError:
                continue
            else:
                yield inner, read.size if read.binary else read.text


# -- the tool -------------------------------------------------------------------------------------------------------


def _tool(skills: Sequence[Skill], readable: tuple[str, ...]) -> Tool:
    by_name = {skill.name: skill for skill in skills}

    async def read(arguments: dict[str, Any], call: CallContext) -> str:
        skill = by_name[arguments["name"]]
        file = arguments.get("file")
        return _instructions(skill, readable) if file in (None, "", SKILL_FILE) else _file(skill, str(file))

    schema = {
        "type": "object",
        "properties": {
            "name": {"enum": [*by_name], "description": "the skill"},
            "file": {
                "type": "string",
                "description": "a file of it that its instructions name; left out: the instructions",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    catalogue = [f"- {skill.name}: {skill.description}" for skill in skills]
    return Tool(
        spec=ToolSpec(READ_SKILL, "Read the instructions of a skill, or one of its files.", schema),
        call=read,
        read_only=True,
        idempotent=True,
        version=_digest(skills),
        prompted="\n".join([_INTRODUCTION, *catalogue]),
    )


def _digest(skills: Sequence[Skill]) -> str:
    texts = [(each.name, each.description, each.requires, each.instructions, {**each.files}) for each in skills]
    return blake2b(repr(texts).encode(), digest_size=16).hexdigest()


def _instructions(skill: Skill, readable: tuple[str, ...]) -> str:
    about: list[str] = []
    if skill.requires:
        about.append(f"Requires: {skill.requires}")
    if skill.files:
        names = [*skill.files][:_MOST_LISTED]
        more = len(skill.files) - len(names)
        about.append(
            f'Files, for {READ_SKILL}(name="{skill.name}", file=...): {", ".join(names)}'
            + (f" and {more} more" if more else "")
        )
        folder = _as_commands_see(skill.folder, readable)
        if folder is not None:
            about.append(f"Folder of the files, for commands: {folder}")
    return "\n\n".join([skill.instructions or skill.description, *about])


def _as_commands_see(folder: str, readable: tuple[str, ...]) -> str | None:
    """The path of a folder from the directory where commands run; None if they may not read it."""
    real = os.path.realpath(folder)
    for index, directory in enumerate(readable):
        if real == directory or real.startswith(f"{directory.rstrip('/')}/"):
            return name_text(os.path.relpath(real, directory) if index == 0 else real)
    return None


def _file(skill: Skill, file: str) -> str:
    content = skill.files.get(os.path.normpath(file))
    if isinstance(content, str):
        return content
    if content is not None:
        raise FileFailure(
            f"{clip(shown(file), 200)} of the skill '{skill.name}' cannot be read: it has {content:,} bytes, and is not a text "
            f"in UTF-8 of at most {MAX_SKILL_FILE:,}",
            code="skill/not-readable",
        )
    there = did_you_mean(file, skill.files) or f"its files are {', '.join([*skill.files][:20]) or 'none'}"
    raise FileFailure(
        f"the skill '{skill.name}' has no file {clip(shown(file), 200)}; {there}", code="skill/unknown-file"
    )
