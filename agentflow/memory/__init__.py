"""Memory: an index over files, ranking, and the one retrieval entry point, :class:`MemorySystem`."""

from agentflow.memory.index import FileIndex, UpdateReport
from agentflow.memory.lexical import LexicalRanker
from agentflow.memory.ranking import RankWeights
from agentflow.memory.rerank import LlmRanker, RerankFailed
from agentflow.memory.rules import IndexRules
from agentflow.memory.system import MemorySystem

__all__ = [
    "FileIndex",
    "IndexRules",
    "LexicalRanker",
    "LlmRanker",
    "MemorySystem",
    "RankWeights",
    "RerankFailed",
    "UpdateReport",
]
