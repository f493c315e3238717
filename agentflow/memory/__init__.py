"""Memory: finds the files that matter for a question. An index on disk, ranking, and one entry point.

Knows ``core`` and files; a model that reranks is reached through a port. Read ``file_memory`` (:class:`FileMemory`, the entry
point), ``finds`` and ``ranking`` (from a question to files), then ``index``, ``builder`` and ``store`` (what is stored, and when).
"""

from agentflow.memory.file_memory import FileMemory
from agentflow.memory.index import FileIndex, UpdateReport
from agentflow.memory.lexical import LexicalRanker
from agentflow.memory.rerank import LlmRanker, RerankFailed
from agentflow.memory.rules import IndexRules
from agentflow.memory.weights import RankWeights

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
