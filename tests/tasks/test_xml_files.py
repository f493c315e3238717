"""Template files: what they may say, what is refused, and errors with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.spec.task_system import TaskSystem
from agentflow.tasks.library import FILES, TEST_FILES, builtin, read
from agentflow.tasks.xml import TemplateFileError, parse_templates, read_directory
from tests.support.fake_tasks import FakePrompts
from tests.support.spending import at_most

FULL = """<?xml version="1.0" encoding="UTF-8"?>
<task name="review" type="atomic" subtype="review" max_turns="4" timeout_s="2.5">
  <description>Review &lt;code&gt;</description>
  <parameters>
    <parameter name="code" type="string">What to review</parameter>
    <parameter name="level" type="integer" default="2"/>
    <parameter name="tags" type="string[]" required="false"/>
  </parameters>
  <instructions><![CDATA[Review <b>{{code}}</b> at level {{level}}]]></instructions>
  <system>Be strict.</system>
  <model>openai:big</model>
  <fallbacks>a, b</fallbacks>
  <output_format type="json"><schema>{"issues": "string[]"}</schema></output_format>
  <context_management>
    <inherit_context>none</inherit_context>
    <accumulate_data>true</accumulate_data>
    <accumulation_format>full_output</accumulation_format>
    <fresh_context>enabled</fresh_context>
  </context_management>
  <history_config use_session_history="false"/>
  <file_paths><path>a.py</path><path>{{code}}</path></file_paths>
  <file_paths_source type="command">git ls-files</file_paths_source>
  <tools><tool>search</tool></tools>
  <decompose>3</decompose>
</task>
"""


def test_everything_a_file_may_say() -> None:
    """Every element and attribute arrives in the template."""
    (template,) = parse_templates(FULL, "review.xml")
    assert template.name == "review" and template.subtype == "review" and template.max_turns == 4
    assert template.timeout_s == 2.5 and template.decompose == 3
    assert template.description == "Review <code>"
    assert template.params["level"].default == "2" and template.params["tags"].required is False
    assert template.instructions == "Review <b>{{code}}</b> at level {{level}}"
    assert (template.system, template.model, template.fallbacks) == ("Be strict.", "openai:big", ["a", "b"])
    assert template.output_format == {"type": "json", "schema": {"issues": "string[]"}}
    assert template.context_management.accumulate_data is True
    assert template.context_management.fresh_context == "enabled"
    assert template.history_config is not None and template.history_config.use_session_history is False
    assert template.file_paths == ["a.py", "{{code}}"]
    assert template.file_paths_source == {"type": "command", "command": "git ls-files"}
    assert template.tools == ["search"]


async def test_a_loaded_template_runs() -> None:
    """A default written as text becomes the parameter's type; the prompt is rendered like any other."""
    prompts = FakePrompts("ok")
    system = TaskSystem(prompts=prompts)
    text = FULL.replace('<file_paths_source type="command">git ls-files</file_paths_source>', "")
    text = text.replace("<fresh_context>enabled", "<fresh_context>disabled").replace("<path>{{code}}</path>", "")
    system.register_template(parse_templates(text.replace("<path>a.py</path>", ""))[0])
    await system.execute_task("atomic", "review", {"code": "<i>"})
    assert prompts.prompts[0].parts[0].text == "Review <b><i></b> at level 2"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("<task>\n</task>", 1, "no name"),
        ('<task name="a">\n</task>', 1, "declares no parameters"),
        ('<task name="a" params="">\n<instrctions/>\n</task>', 2, "<instrctions> is unknown"),
        ('<task name="a" params="" colour="red"/>', 1, "no attribute 'colour'"),
        ('<task name="a">\n<parameters>\n<parameter type="string"/>\n</parameters></task>', 3, "no name"),
        ('<task name="a">\n<parameters>\n<parameter name="x" type="strin"/>\n</parameters></task>', 1, "not a type"),
        ('<task name="a">\n<parameters>\n<parameter name="x"/>\n<parameter name="x"/></parameters></task>', 4, "twice"),
        ('<task name="a" params="x">\n\n<instructions>{{y}}</instructions></task>', 3, "not a declared parameter"),
        ('<task name="a" params="x">\n<instructions>x</instructions>\n<instructions/></task>', 3, "given twice"),
        ('<task name="a" params="">\n<instructions>a <b>c</b></instructions></task>', 2, "holds text only"),
        ('<task name="a" params="">\nloose text</task>', 1, "text stands directly"),
        ('<task name="a" params="">\n<output_format type="json"><schema>{oops}</schema></output_format></task>', 2, "not JSON"),
        ('<task name="a" params="">\n<output_format type="yaml"/></task>', 2, "neither"),
        ('<task name="a" params="">\n<context_management>\n<fresh_contxt/></context_management></task>', 3, "unknown in"),
        ('<task name="a" params="">\n<context_management><inherit_context>some</inherit_context></context_management></task>', 2, "context_management"),
        ('<task name="a" params="">\n<file_paths_source type="magic">x</file_paths_source></task>', 2, "unknown"),
        ('<task name="a" params="">\n<file_paths_source type="command"/></task>', 2, "needs its text"),
        ('<task name="a" params="" max_turns="few"/>', 1, "is a number"),
        ('<tasks>\n<task name="a" params=""/>\n<task name="a" params=""/></tasks>', 3, "defined twice"),
        ("<tasks>\n</tasks>", 1, "holds no <task>"),
        ("<tsks/>", 1, "did you mean"),
        ('<task name="a"\n', 1, "well-formed"),
        ('<task name="a" params="">\n<b></c></task>', 2, "well-formed"),
        ("", 1, "well-formed"),
        ("(defatom x)", 1, "well-formed"),
    ],
)  # fmt: skip
def test_faults_have_lines(text: str, line: int, says: str) -> None:
    """Every fault is a TemplateFileError (xml_validation_failure) with file, line and what is wrong."""
    with pytest.raises(TemplateFileError) as caught:
        parse_templates(text, "f.xml")
    error = caught.value
    assert error.reason == "xml_validation_failure" and error.span is not None
    assert (error.span.source.name, error.span.line) == ("f.xml", line)
    assert says in error.render()


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    + ']><task name="a" params="">&j;</task>'
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        '<!DOCTYPE x SYSTEM "file:///etc/passwd"><task name="a" params=""/>',
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><task name="a" params="">&e;</task>',
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x">%p;]><task name="a" params=""/>',
        '<?xml-stylesheet href="http://127.0.0.1:1/"?><task name="a" params=""/>',
        "<a>" * 100_000,
        "<tasks>" + "<task/>" * 50_000 + "</tasks>",
        '<task name="a" params="">' + "x" * 1_100_000 + "</task>",
        "\x00" * 10,
        "<task name='a' params=''>\ud800</task>",
        "<a " + " ".join(f"b{n}='1'" for n in range(100_000)) + "/>",
    ],
    ids=[
        "bomb",
        "system",
        "entity",
        "parameter-entity",
        "instruction",
        "deep",
        "wide",
        "large",
        "nul",
        "surrogate",
        "attributes",
    ],
)
def test_hostile_xml_is_refused_quickly(text: str) -> None:
    """Entities, document types and instructions are refused; size, depth and count are bounded; nothing is fetched."""
    with pytest.raises(AgentflowError) as caught, at_most(3):
        parse_templates(text, "evil.xml")
    assert caught.value.code.startswith("tasks/xml")


def test_a_directory_of_files(tmp_path: Path) -> None:
    """All ``*.xml`` files of a directory load in order of their names; other files are passed over."""
    (tmp_path / "b.xml").write_text('<tasks><task name="b1" params=""/><task name="b2" params=""/></tasks>')
    (tmp_path / "a.xml").write_text('\ufeff<task name="a" params=""/>', encoding="utf-8")
    (tmp_path / "notes.txt").write_text("<")
    assert [template.name for template in read_directory(tmp_path)] == ["a", "b1", "b2"]


async def test_loading_is_all_or_nothing(tmp_path: Path) -> None:
    """One fault is raised as it is, several are listed; no template of the directory is registered then."""
    system = TaskSystem()
    (tmp_path / "a.xml").write_text('<task name="a" params=""/>')
    assert await system.load_directory(tmp_path) == ["a"]
    (tmp_path / "b.xml").write_text("<task\n name='b'/>")
    (tmp_path / "new.xml").write_text("<task name='new' params=''/>")
    with pytest.raises(TemplateFileError) as caught:
        await system.load_directory(tmp_path)
    assert caught.value.span is not None and caught.value.span.source.name.endswith("b.xml")
    (tmp_path / "c.xml").write_bytes(b"\xff\xfe")
    (tmp_path / "d.xml").write_text('<task name="a" params=""/>')
    with pytest.raises(TemplateFileError, match="3 of 5 template files") as caught:
        await system.load_directory(tmp_path)
    assert len(caught.value.details["faults"]) == 3
    assert system.template_names() == ["a"]
    with pytest.raises(TemplateFileError, match="not a directory"):
        await system.load_directory(tmp_path / "gone")


def test_every_built_in_template_is_well_formed() -> None:
    """Each file of the library compiles, is atomic, keeps out of the conversation and is found by ``type:subtype``."""
    system = TaskSystem()
    for identifier in FILES:
        compiled = builtin(identifier)
        assert compiled is not None and compiled.template.type == "atomic" and compiled.template.description
        assert system.find_template(identifier) is not None
    for identifier, file in TEST_FILES.items():
        assert read(file) is not None and builtin(identifier) is None
    for identifier in ("atomic:solve", "atomic:associative_matching:content", "atomic:associative_matching:metadata"):
        compiled = builtin(identifier)
        assert compiled is not None and compiled.template.tools == []
        assert compiled.template.history_config is not None
        assert compiled.template.history_config.record_in_session_history is False
    assert system.templates == {} and system.template_names() == []
