"""Memory: finds the files that matter for a question. An index on disk, ranking, and one entry point.

Knows ``core`` and files; a model that reranks is reached through a port. Read ``file_memory`` (:class:`FileMemory`, the
entry point), ``finder`` and ``ranking`` (from a question to files), then ``index``, ``builder`` and ``index_store`` (the stored
data, and when it is updated).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentflow.memory.builder import UpdateReport
    from agentflow.memory.file_memory import FileMemory
    from agentflow.memory.index import FileIndex, LexicalRanker
    from agentflow.memory.rerank import LlmRanker, RerankFailed
    from agentflow.memory.rules import IndexRules
    from agentflow.memory.weights import RankWeights

_NAMES = {
    "file_memory": "FileMemory",
    "index": "FileIndex LexicalRanker UpdateReport",
    "rerank": "LlmRanker RerankFailed",
    "rules": "IndexRules",
    "weights": "RankWeights",
}
"""The names of the room by the module that defines each. They are imported on use: a flow that asks nothing has no index."""

__all__ = [
    "FileIndex",
    "FileMemory",
    "IndexRules",
    "LexicalRanker",
    "LlmRanker",
    "RankWeights",
    "RerankFailed",
    "UpdateReport",
]


def __getattr__(name: str) -> object:
    for module, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"agentflow.memory.{module}"), name)
    raise AttributeError(f"module 'agentflow.memory' has no attribute '{name}'")
