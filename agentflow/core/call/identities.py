"""Identities of calls under a strict policy: effects are numbered apart by the sources of the tests that led to them.

The path of a call counts all effects before it, those in arms too, so the path of a call outside of arms tells of them. Others
know a call by its identity, which counts only effects that depend on the same sources
(:attr:`~agentflow.core.call.call.CallContext.identity`).
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from agentflow.core.data.labels import NO_SOURCES, Sources


# The path stays the key of records: the policy in force, which may change, decides about the numbers (decision 73)
class Reasons:
    """The ``sources`` of the tests that the call at ``path``, and all within it, is made because of.

    ``identity`` is that of the call. Its effects are numbered here, apart for each set of sources.
    """

    __slots__ = ("_head", "_name", "_numbers", "path", "sources")

    def __init__(self, path: str, identity: str, sources: Sources = NO_SOURCES, head: str | None = None) -> None:
        self.path = path
        self.sources = sources
        self._head = path if head is None else head
        self._name = identity
        self._numbers: dict[Sources, int] = {}

    def identity_of(self, path: str) -> str:
        """The identity of the call at ``path``: this one, one within it, or one that is no part of it, as the question for a limit."""
        head = self._head
        return self._name + path[len(head) :] if path.startswith(head) else path

    def of_part(self, path: str, sources: Sources) -> Reasons:
        """Those of an effect or a form that starts now at ``path``, within this call, because of ``sources``.

        One that has no number, since it is known by its content, keeps its name.
        """
        above, _, last = path.rpartition("/")
        number = last.partition(".")[0]
        if above != self.path or not number.lstrip("-").isdecimal():
            return Reasons(path, self._name, sources, self._head)
        count = self._numbers.get(sources, 0)
        self._numbers[sources] = count + 1
        # No path has this sign, so no path of a run is the identity of another call in it.
        name = f"{self.identity_of(self.path)}/{count}={mark_of(sources)}"
        return Reasons(path, name, sources, f"{above}/{number}")  # without an index: a form's branches have theirs


@lru_cache(4_096)
def mark_of(sources: Sources) -> str:
    """Hexadecimal digits that stand for a set of sources, the same in every process; empty for none."""
    if not sources:
        return ""
    return blake2b("\n".join(sorted(sources)).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
