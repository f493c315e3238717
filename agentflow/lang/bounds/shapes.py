"""The shape of a task's answers from their JSON Schema: the lengths of lists, and the schemas of parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.records import is_dict

Stage: TypeAlias = Literal["result", "value", "data"]
"""``result``: the data is still in a result; ``value``: the output of ``value-of``, which is text if the answer was not JSON;
``data``: data that is known to satisfy the schema."""

_MOST_REFERENCES = 20


@frozen
class Shape:
    """Data that satisfies the schema ``node``, whose references are resolved in ``root``."""

    node: Mapping[str, Any]
    root: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stage: Stage = "result"

    @property
    def longest(self) -> int | None:
        """The maximum length of the list; None if the schema does not limit it."""
        lengths: list[int] = []
        for each in self._choices():
            kind, most = each.get("type"), each.get("maxItems")
            if kind == "array" and type(most) is int and most >= 0:
                lengths.append(most)
            elif kind not in ("null", "boolean", "number", "integer"):
                return None
        return max(lengths, default=None)

    def at(self, stage: Stage) -> Shape:
        """The same shape at another stage."""
        return replace(self, stage=stage)

    def element(self) -> Shape | None:
        """The shape of the elements; None if the schema does not define it."""
        return self._within("array", "items")

    def part(self, key: str) -> Shape | None:
        """The shape of the value of ``key``; None if the schema does not define it."""
        properties = self._within("object", "properties")
        return None if properties is None else self._of(properties.node.get(key))

    def _within(self, kind: str, keyword: str) -> Shape | None:
        choices = [each for each in self._choices() if each.get("type") == kind]
        if self.stage == "result" or len(choices) != 1 or "prefixItems" in choices[0]:
            return None
        return self._of(choices[0].get(keyword))

    def _of(self, node: object) -> Shape | None:
        return Shape(cast("Mapping[str, Any]", node), self.root, "data") if is_dict(node) else None

    def _choices(self) -> list[Mapping[str, Any]]:
        """The alternative schemas; an empty one stands for what cannot be resolved."""
        pending, choices = [self.node], list[Mapping[str, Any]]()
        for _ in range(_MOST_REFERENCES):
            if not pending:
                return choices
            node = pending.pop()
            reference, options = node.get("$ref"), node.get("anyOf", node.get("oneOf"))
            if isinstance(reference, str):
                pending.append(self._referred(reference))
            elif isinstance(options, list):
                pending += [each if is_dict(each) else {} for each in cast("list[Any]", options)]
            else:
                choices.append(node)
        return [{}]

    def _referred(self, reference: str) -> Mapping[str, Any]:
        node: Any = self.root
        for name in reference.removeprefix("#/").split("/"):
            node = node.get(name) if is_dict(node) else None
        return node if is_dict(node) else {}
