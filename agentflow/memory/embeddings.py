"""The source that finds files by meaning: vectors of their texts, stored in the index next to the words."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.ports.memory_ports import Candidate, Embedder
from agentflow.memory.index import FileIndex
from agentflow.memory.store import Store

_LINES = 40
_TEXT = 1_600
"""Maximum number of characters per embedded text: small models read about 500 tokens."""
_TEXTS_OF_A_FILE = 8
_FILES_AT_ONCE = 16
_TEXTS_AT_ONCE = 32
_QUESTION = 4_000


class EmbeddingSource:
    """The :class:`~agentflow.core.ports.memory_ports.CandidateSource` that uses an embedding model.

    Parameters: ``index`` holds the files, and the vectors in its database; ``embedder`` computes vectors. A file has one per 40
    lines, up to 8. Raises ConfigurationError (``memory/numpy``) without the extra ``embeddings``.
    """

    def __init__(self, index: FileIndex, embedder: Embedder) -> None:
        if importlib.util.find_spec("numpy") is None:
            raise ConfigurationError(
                "embeddings need numpy, which is not installed",
                code="memory/numpy",
                hint="install agentflow[embeddings]",
            )
        self.embedder = embedder
        self._index = index

    async def update(self, call: CallContext | None, most: int | None = None) -> int:
        """Compute the vectors of new and changed files, of at most ``most`` files.

        Returns a lower bound of the number of files left. Computed vectors are kept if the server fails. Raises the errors
        of the embedder.
        """
        model = self.embedder.model
        done = 0
        while True:
            wanted = _FILES_AT_ONCE if most is None else min(_FILES_AT_ONCE, most - done)
            # one more than will be processed, to see whether any is left
            files = await self._index.read_store(lambda store, limit=wanted + 1: store.vectors.missing(model, limit))
            some = files[:wanted]
            if not some:
                return len(files)
            texts = await self._index.texts((root, path) for _, root, path, _ in some)
            pieces = [(file, piece) for file in some for piece in _pieces(file[2], texts.get((file[1], file[2]), ""))]
            vectors: list[bytes] = []
            for start in range(0, len(pieces), _TEXTS_AT_ONCE):
                part = [text for _, (_, _, text) in pieces[start : start + _TEXTS_AT_ONCE]]
                vectors += _packed(await self.embedder.embed(part, call))
            vectors_by_file: dict[int, list[tuple[int, int, bytes]]] = {file[0]: [] for file in some}
            for (file, (first, last, _)), vector in zip(pieces, vectors, strict=True):
                vectors_by_file[file[0]].append((first, last, vector))

            def keep(
                store: Store, files: Sequence[Any] = some, vectors_by_file: dict[int, Any] = vectors_by_file
            ) -> None:
                for id, _, _, digest in files:
                    store.vectors.put(id, digest, model, vectors_by_file[id])

            await self._index.change_store(keep)
            done += len(some)

    async def candidates(
        self, question: ContextGenerationInput, limit: int, call: CallContext | None = None
    ) -> list[Candidate]:
        """The ``limit`` files with the texts nearest to the question, each with its nearest lines."""
        (vector,) = await self.embedder.embed([question.text[:_QUESTION]], call)
        near = await self._index.read_store(lambda store: _nearest(store, self.embedder.model, vector, limit))
        if near is None:
            # the server now has another model under this name, whose vectors cannot be compared with the stored ones
            await self._index.change_store(lambda store: store.vectors.clear())
            await self.update(call, most=_FILES_AT_ONCE)
            near = await self._index.read_store(lambda store: _nearest(store, self.embedder.model, vector, limit))
        return [
            Candidate(path, (first, last), score, f"similar meaning (similarity {score:.2f})")
            for path, first, last, score in near or ()
        ]


def _pieces(path: str, text: str) -> list[tuple[int, int, str]]:
    """The texts to embed for a file, each with its first and last line; the path gives the model their context."""
    lines = text.splitlines()
    starts = islice(range(0, len(lines), _LINES), _TEXTS_OF_A_FILE)
    return [
        (start + 1, min(start + _LINES, len(lines)), f"{path}\n" + "\n".join(lines[start : start + _LINES])[:_TEXT])
        for start in starts
        if any(line.strip() for line in lines[start : start + _LINES])
    ]


def _packed(vectors: Sequence[Sequence[float]]) -> list[bytes]:
    """Unit vectors in half precision: cosines differ by less than a thousandth."""
    import numpy

    rows = numpy.asarray(vectors, dtype=numpy.float32)
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    return [row.tobytes() for row in (rows / numpy.maximum(lengths, 1e-9)).astype(numpy.float16)]


def _nearest(store: Store, model: str, vector: Sequence[float], limit: int) -> list[tuple[str, int, int, float]] | None:
    """Path, lines and similarity of the files nearest to ``vector``; None if the stored vectors have another length."""
    import numpy

    asked = numpy.frombuffer(_packed([vector])[0], dtype=numpy.float16).astype(numpy.float32)
    best: dict[int, tuple[float, int, int]] = {}
    for some in store.vectors.read(model):
        stored = b"".join(map(itemgetter(3), some))
        if len(stored) != len(some) * len(vector) * 2:
            return None
        rows = numpy.frombuffer(stored, dtype=numpy.float16).reshape(len(some), -1).astype(numpy.float32)
        for (file, first, last, _), score in zip(some, (rows @ asked).tolist(), strict=True):
            if score > 0 and (file not in best or score > best[file][0]):
                best[file] = (score, first, last)
    files = sorted(best, key=lambda file: (-best[file][0], file))[:limit]
    rows_of = store.rows(files)
    return [
        (f"{rows_of[file].root.rstrip('/')}/{rows_of[file].path}", best[file][1], best[file][2], best[file][0])
        for file in files
        if file in rows_of
    ]
