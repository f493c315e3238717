"""Reads template files: XML, checked by hand-written rules, with the line of every error. Hostile XML is refused.

A file holds one ``<task>`` or a ``<tasks>`` of several::

    <task name="review" subtype="standard" params="code">        or <parameters><parameter name= type= .../></parameters>
      <description>...</description>
      <instructions>Review {{code}}</instructions>
      <system>...</system>  <model>...</model>  <fallbacks>a, b</fallbacks>
      <output_format type="json" schema="string[]"/>             or <schema>{...}</schema> inside
      <context_management><inherit_context>none</inherit_context> ...</context_management>
      <history_config use_session_history="false"/>
      <file_paths><path>src/a.py</path></file_paths>
      <file_paths_source type="command">git ls-files '*.py'</file_paths_source>
      <tools><tool>search</tool></tools>                         empty: none
    </task>

Document types, entities and processing instructions are refused by ``defusedxml`` (imported when first used); size,
depth and number of elements are bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from xml.sax import SAXException, SAXParseException
from xml.sax.handler import ContentHandler

from agentflow.core.data.errors import AgentflowError, DataError, cut
from agentflow.core.data.frozen import slotted
from agentflow.core.data.source import Source, Span
from agentflow.core.data.templates import ContextManagement, HistoryConfig, TaskTemplate
from agentflow.lib.own_threads import own_thread
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.context_rules import resolve_settings
from agentflow.tasks.template_registry import compile_template, read_template

MAX_FILE_BYTES = 1_000_000
MAX_ELEMENTS = 20_000
MAX_DEPTH = 16
MAX_FILES = 10_000


class TemplateFileError(DataError):
    """A template file is invalid; the span says where."""

    default_code = "tasks/xml"
    default_reason = "xml_validation_failure"


@slotted
class Element:
    """An XML element: its ``tag``, ``attributes``, child nodes, text and span."""

    tag: str
    attributes: dict[str, str]
    span: Span
    children: list[Element] = field(default_factory=list["Element"])
    texts: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The text of this element, without that of its children."""
        return "".join(self.texts)

    def fail(self, message: str, hint: str | None = None) -> TemplateFileError:
        """An error at this element."""
        return TemplateFileError(message, span=self.span, hint=hint)


class _Builder(ContentHandler):
    """Builds nodes with spans from SAX events, and enforces the bounds."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.locator: Any = None

    def setDocumentLocator(self, locator: Any) -> None:
        self.locator = locator

    def span(self) -> Span:
        return _span(self.source, self.locator.getLineNumber(), self.locator.getColumnNumber())

    def startElement(self, name: str, attrs: Any) -> None:
        node = Element(name, {str(key): str(value) for key, value in attrs.items()}, self.span())
        self.count += 1
        if self.count > MAX_ELEMENTS or len(self.open) >= MAX_DEPTH:
            raise node.fail(f"more than {MAX_ELEMENTS:,} elements, or more than {MAX_DEPTH} levels")
        if self.open:
            self.open[-1].children.append(node)
        else:
            self.root = node
        self.open.append(node)

    def endElement(self, name: str) -> None:
        self.open.pop()

    def characters(self, content: str) -> None:
        if self.open:
            self.open[-1].texts.append(content)

    def processingInstruction(self, target: str, data: str) -> None:
        raise TemplateFileError(
            f"a processing instruction ('<?{cut(target, 40)}') has no place here",
            code="tasks/xml-hostile",
            span=self.span(),
        )


def _span(source: Source, line: int, column: int) -> Span:
    starts = source.line_starts
    start = starts[min(max(line, 1), len(starts)) - 1] + max(column, 0)
    end = source.text.find(">", start) + 1
    return source.span(start, end if 0 < end <= start + 200 else min(len(source.text), start + 1))


def parse_xml(text: str, name: str) -> Element:
    """The root element of an XML text. Raises TemplateFileError if it is malformed, too large or hostile."""
    from defusedxml import DefusedXmlException
    from defusedxml.sax import parseString

    source = Source(name, text)
    if len(text) > MAX_FILE_BYTES:
        raise TemplateFileError(f"{name} has more than {MAX_FILE_BYTES:,} characters", code="tasks/xml-hostile")
    builder = _Builder(source)
    try:
        parseString(text.encode("utf-8", "replace"), builder, forbid_dtd=True)
    except DefusedXmlException as error:
        raise TemplateFileError(
            f"{name} declares a document type or entities, which template files may not",
            code="tasks/xml-hostile",
            span=builder.span() if builder.locator is not None else None,
            hint="remove the <!DOCTYPE ...>; write &lt; &gt; &amp; or a CDATA section",
        ) from error
    except SAXParseException as error:
        span = _span(source, error.getLineNumber() or 1, error.getColumnNumber() or 0)
        raise TemplateFileError(f"{name} is not well-formed XML: {error.getMessage()}", span=span) from error
    except SAXException as error:
        raise TemplateFileError(f"{name} cannot be read as XML: {error}") from error
    if builder.root is None:
        raise TemplateFileError(f"{name} holds no element")
    return builder.root


_Reader = Callable[[Element], Any]
_ATTRIBUTES = ("name", "type", "subtype", "params", "model", "is_function", "description", "decompose", "max_turns",
               "max_output_tokens", "timeout_s", "reuse", "version", "priority", "prompt_cache", "effort")  # fmt: skip


def parse_templates(text: str, name: str = "<xml>") -> list[TaskTemplate]:
    """The templates in an XML text, each fully checked. ``name`` is the name of the text in errors.

    Raises TemplateFileError with the span of the first fault.
    """
    root = parse_xml(text, name)
    if root.tag in ("task", "template"):
        return [_template(root)]
    if root.tag != "tasks":
        raise root.fail(
            f"the root element is <{root.tag}>; <task> or <tasks> is wanted", did_you_mean(root.tag, ("task", "tasks"))
        )
    if not root.children:
        raise root.fail("<tasks> holds no <task>")
    templates: list[TaskTemplate] = []
    seen: set[str] = set()
    for child in root.children:
        if child.tag not in ("task", "template"):
            raise child.fail(f"<{child.tag}> stands where a <task> is wanted")
        template = _template(child)
        if template.name in seen:
            raise child.fail(f"task '{template.name}' is defined twice in this file")
        seen.add(template.name)
        templates.append(template)
    return templates


def _template(node: Element) -> TaskTemplate:
    _known_attributes(node, _ATTRIBUTES)
    fields: dict[str, Any] = {key: _scalar(node, key) for key in node.attributes}
    if "name" not in fields:
        raise node.fail(f"<{node.tag}> has no name", f'write <{node.tag} name="...">')
    if node.tag == "template":
        fields.setdefault("is_function", True)
    for child in node.children:
        reader = _CHILDREN.get(child.tag)
        if reader is None:
            raise child.fail(
                f"<{child.tag}> is unknown in a <task>",
                did_you_mean(child.tag, _CHILDREN) or f"known are {', '.join(sorted(_CHILDREN))}",
            )
        key = _KEYS.get(child.tag, child.tag)
        if key in fields:
            raise child.fail(f"<{child.tag}> is given twice")
        fields[key] = reader(child)
    if "params" not in fields:
        raise node.fail(
            f"task '{fields['name']}' declares no parameters", 'write params="a, b" or <parameters/>, empty for none'
        )
    if node.text.strip():
        raise node.fail(f"text stands directly in <{node.tag}>", "put the prompt into <instructions>")
    try:
        template = read_template(fields)
        compile_template(template)
        resolve_settings(template.subtype, template.context_management)
    except AgentflowError as error:
        raise TemplateFileError(error.message, span=_span_of(error, node), hint=error.hint) from error
    return template


def _span_of(error: AgentflowError, node: Element) -> Span:
    """The span of the child element that a template's error concerns, if its source names one; else of the task."""
    name = error.span.source.name if error.span is not None else error.code
    for tag, mark in (("system", "system prompt"), ("file_paths", "file_paths of"), ("output_format", "output-format"),
                      ("context_management", "context-conflict"), ("instructions", "template ")):  # fmt: skip
        if mark in name:
            element = next((child for child in node.children if child.tag == tag), None)
            if element is not None:
                return element.span
    return node.span


def _scalar(node: Element, key: str) -> Any:
    text = node.attributes[key].strip()
    if key == "is_function":
        return _boolean(node, key, text)
    if key in ("decompose", "max_turns", "max_output_tokens", "priority", "timeout_s"):
        try:
            return float(text) if key == "timeout_s" else int(text)
        except ValueError:
            raise node.fail(f"{key} is a number, not '{cut(text, 40)}'") from None
    return text


def _boolean(node: Element, key: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise node.fail(f"{key} is 'true' or 'false', not '{cut(text, 40)}'")
    return text.strip().lower() == "true"


def _known_attributes(node: Element, names: tuple[str, ...]) -> None:
    for key in node.attributes:
        if key not in names:
            raise node.fail(
                f"<{node.tag}> has no attribute '{key}'",
                did_you_mean(key, names) or (f"it takes {', '.join(names)}" if names else "it takes none"),
            )


def _leaf(node: Element) -> str:
    _known_attributes(node, ())
    if node.children:
        raise node.children[0].fail(
            f"<{node.children[0].tag}> inside <{node.tag}>, which holds text only",
            "write &lt; for a plain '<', or wrap the text in <![CDATA[ ... ]]>",
        )
    return node.text


def _trimmed(node: Element) -> str:
    return _leaf(node).strip()


def _number(node: Element) -> Any:
    text = _trimmed(node)
    if re.fullmatch(r"-?\d{1,9}(\.\d{1,6})?", text) is None:
        raise node.fail(f"<{node.tag}> holds a number, not '{cut(text, 40)}'")
    return float(text) if "." in text else int(text)


def _parameters(node: Element) -> dict[str, Any]:
    _known_attributes(node, ())
    parameters: dict[str, Any] = {}
    for child in node.children:
        if child.tag not in ("parameter", "param"):
            raise child.fail(f"<{child.tag}> stands where a <parameter> is wanted")
        _known_attributes(child, ("name", "type", "required", "default", "description"))
        name = child.attributes.get("name", "").strip()
        if not name:
            raise child.fail("a <parameter> has no name")
        if name in parameters:
            raise child.fail(f"parameter '{name}' is declared twice")
        declared: dict[str, Any] = {"description": child.attributes.get("description", child.text.strip())}
        if "type" in child.attributes:
            declared["type"] = child.attributes["type"].strip()
        if "required" in child.attributes:
            declared["required"] = _boolean(child, "required", child.attributes["required"])
        if "default" in child.attributes:
            declared["default"] = child.attributes["default"]
        parameters[name] = declared
    return parameters


def _list_of(tag: str) -> _Reader:
    def read(node: Element) -> list[str]:
        _known_attributes(node, ())
        if not node.children:
            return [part.strip() for part in node.text.split(",") if part.strip()]
        items: list[str] = []
        for child in node.children:
            if child.tag != tag:
                raise child.fail(f"<{child.tag}> stands where a <{tag}> is wanted")
            items.append(_trimmed(child))
        return items

    return read


def _output_format(node: Element) -> dict[str, Any]:
    _known_attributes(node, ("type", "schema"))
    output: dict[str, Any] = dict(node.attributes)
    for child in node.children:
        if child.tag != "schema" or "schema" in output:
            raise child.fail(f"<{child.tag}> does not belong here; one <schema> may stand in <output_format>")
        text = _trimmed(child)
        if text[:1] in ("{", "["):
            try:
                output["schema"] = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise child.fail(f"the schema is not JSON: {error}") from None
        else:
            output["schema"] = text
    return output


def _settings_of(kind: type[ContextManagement] | type[HistoryConfig]) -> _Reader:
    names = tuple(kind.model_fields)

    def read(node: Element) -> dict[str, Any]:
        _known_attributes(node, names)
        values: dict[str, str] = dict(node.attributes)
        for child in node.children:
            if child.tag not in names:
                raise child.fail(f"<{child.tag}> is unknown in <{node.tag}>", did_you_mean(child.tag, names))
            if child.tag in values:
                raise child.fail(f"{child.tag} is given twice")
            values[child.tag] = _trimmed(child)
        try:
            return kind.model_validate(values).model_dump(exclude_unset=True)
        except ValueError as error:
            said = str(cast(Any, error).errors()[0]["msg"]) if hasattr(error, "errors") else str(error)
            raise node.fail(f"<{node.tag}>: {said}") from error

    return read


def _file_paths_source(node: Element) -> dict[str, Any]:
    _known_attributes(node, ("type",))
    kind = node.attributes.get("type", "literal")
    if kind not in ("literal", "command", "description", "context_description"):
        raise node.fail(
            f"a source of type '{cut(kind, 40)}' is unknown",
            "types are literal, command, description, context_description",
        )
    if kind == "literal":
        return {"type": kind, "paths": _list_of("path")(Element(node.tag, {}, node.span, node.children, node.texts))}
    text = "".join([node.text, *(child.text for child in node.children)]).strip()
    if not text:
        raise node.fail(f"a {kind} source needs its text")
    return {"type": kind, "command" if kind == "command" else "description": text}


_CHILDREN: Mapping[str, _Reader] = MappingProxyType(
    {
        "context_management": _settings_of(ContextManagement),
        "decompose": _number,
        "description": _trimmed,
        "effort": _trimmed,
        "fallbacks": _list_of("model"),
        "file_paths": _list_of("path"),
        "file_paths_source": _file_paths_source,
        "history_config": _settings_of(HistoryConfig),
        "instructions": _leaf,
        "max_output_tokens": _number,
        "max_turns": _number,
        "model": _trimmed,
        "output_format": _output_format,
        "parameters": _parameters,
        "params": _trimmed,
        "priority": _number,
        "prompt_cache": _trimmed,
        "reuse": _trimmed,
        "version": _trimmed,
        "system": _leaf,
        "system_prompt": _leaf,
        "timeout_s": _number,
        "tools": _list_of("tool"),
    }
)
_KEYS: Mapping[str, str] = MappingProxyType({"parameters": "params", "system_prompt": "system"})


def read_file(path: str | Path) -> list[TaskTemplate]:
    """The templates in a file. Blocking. Raises TemplateFileError."""
    try:
        with Path(path).open("rb") as handle:
            data = handle.read(MAX_FILE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TemplateFileError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise TemplateFileError(f"{path} cannot be read: {error.strerror}", code="tasks/unreadable-file") from error
    return parse_templates(text, str(path))


def read_directory(path: str | Path) -> list[TaskTemplate]:
    """The templates in all ``*.xml`` files of a directory, sorted by file name. Blocking.

    Raises one TemplateFileError: for the only fault, or naming every faulty file.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise TemplateFileError(f"{directory} is not a directory", code="tasks/unreadable-file")
    templates: dict[str, tuple[TaskTemplate, Path]] = {}
    faults: list[TemplateFileError] = []
    files = sorted(file for file in directory.iterdir() if file.suffix == ".xml" and file.is_file())
    for file in files[:MAX_FILES]:
        try:
            for template in read_file(file):
                if template.name in templates:
                    raise TemplateFileError(f"{file}: task '{template.name}' is also in {templates[template.name][1]}")
                templates[template.name] = (template, file)
        except TemplateFileError as error:
            faults.append(error)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise TemplateFileError(
            f"{len(faults)} of {len(files)} template files have faults: " + "; ".join(map(str, faults[:10])),
            details={"faults": [fault.to_dict() for fault in faults[:100]]},
        )
    return [template for template, _ in templates.values()]


async def load_directory(path: str | Path) -> list[TaskTemplate]:
    """Run :func:`read_directory` on a worker thread."""
    return await own_thread(read_directory, path)
