"""Scores short texts against a question without an index: Okapi BM25 over the texts given.

Formula: S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with k1 = 1.2 and
b = 0.5 (sentences differ less in length than documents do), inverse document frequency floored above zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentflow.lib.text.terms import Tokeniser

_K1 = 1.2
_B = 0.5


class LexicalSentenceRanker:
    """Ranks sentences without an index.

    Call it with a query and texts; it returns one score in 0..1 per text, in order: BM25 divided by the best score. All
    are 0.0 if no text shares a term with the query. Deterministic. Raises nothing.
    """

    def __init__(self, tokeniser: Tokeniser | None = None) -> None:
        self._tokeniser = tokeniser or Tokeniser(20_000)

    def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
        question = self._tokeniser.query_terms(query)
        if not question or not texts:
            return [0.0] * len(texts)
        bags = [self._tokeniser.bag(text) for text in texts]
        lengths = [sum(bag.values()) for bag in bags]
        mean = sum(lengths) / len(lengths) or 1.0
        weights = {term: _idf(sum(term in bag for bag in bags), len(bags)) for term in question}
        scores = [
            sum(
                weight * bag[term] * (_K1 + 1) / (bag[term] + _K1 * (1 - _B + _B * length / mean))
                for term, weight in weights.items()
                if term in bag
            )
            for bag, length in zip(bags, lengths, strict=True)
        ]
        best = max(scores)
        return [score / best for score in scores] if best > 0 else scores


def _idf(holding: int, total: int) -> float:
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))
