"""The report of an evaluation: its figures, and its saved forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.values import plain
from agentflow.evals.figures import EvaluationFigures
from agentflow.evals.forms import as_html, as_junit, as_markdown, as_text

_STOPPED = ("message", "limit", "allowed", "used")
"""The saved parts of the error of a limit."""


class EvaluationReport(EvaluationFigures):
    """The outcome of an evaluation. ``report["short"]`` is one of its ``variants``.

    ``samples`` are all samples, ``order`` the names of the cases in the order they were taken; ``repeat`` is the
    number of draws. ``stopped`` is the error of the limit that ended it early: then it is ``partial``, and counts the cases
    complete in all variants. ``began`` is a unix time, ``took_s`` a number of seconds. Judges, and
    tasks that score, made ``judging_calls`` model calls for ``judging_usd`` dollars, which no sample includes. ``run_id`` carries it on:
    ``flow.evaluate(..., run_id=report.run_id)`` with a higher limit pays for the rest.

    ``primary`` are the scores with intervals that hold together. ``until`` is the half width where it was to stop, and
    ``enough`` whether it did; with it, all intervals are those of confidence sequences. ``bounded`` are the scores from 0 to 1 other
    than yes or no.
    """

    def __str__(self) -> str:
        return as_text(self)

    def to_markdown(self) -> str:
        """The report as Markdown."""
        return as_markdown(self)

    def to_html(self) -> str:
        """The report as a page: one HTML file, which requests nothing."""
        return as_html(self)

    def to_junit(self) -> str:
        """The report as JUnit XML: a test case for each case and variant, which fails unless all its yes-or-no scores are yes."""
        return as_junit(self)

    def to_jsonl(self) -> str:
        """The report as JSON lines: one for the evaluation, then one for each sample."""
        head = {
            "evaluation": self.run_id,
            "variants": list(self.variants),
            "baseline": self.baseline,
            "order": list(self.order),
            "repeat": self.repeat,
            "began": self.began,
            "took_s": self.took_s,
            "partial": self.partial,
            "stopped": None if (why := self.stopped) is None else {name: getattr(why, name) for name in _STOPPED},
            "primary": list(self.primary),
            "until": self.until,
            "enough": self.enough,
            "bounded": sorted(self.bounded),
            "before": self.before,
            "judging_calls": self.judging_calls,
            "judging_usd": self.judging_usd,
        }
        lines = [head, *[each.to_dict() for each in self.samples]]
        return "".join([json.dumps(plain(each), ensure_ascii=False) + "\n" for each in lines])

    def to_frame(self) -> Any:
        """The samples as a pandas data frame, a row each. Raises ConfigurationError (``config/extra``) without pandas."""
        try:
            import pandas  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
        except ImportError:
            raise ConfigurationError(
                "a data frame needs pandas", code="config/extra", hint="python3 -m pip install pandas"
            ) from None
        records = [{**(data := each.to_dict()), **data.pop("scores")} for each in self.samples]
        return pandas.DataFrame(records)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    def save(self, path: str | Path) -> None:
        """Write the report to ``path``, in the form of its ending: ``.html``, ``.jsonl``, ``.md``, ``.xml`` (JUnit) or ``.txt``.

        Raises ConfigurationError (``evals/report``) for another ending, OSError.
        """
        path = Path(path)
        forms = {
            ".html": self.to_html,
            ".jsonl": self.to_jsonl,
            ".md": self.to_markdown,
            ".xml": self.to_junit,
            ".txt": self.__str__,
        }
        form = forms.get(path.suffix.lower())
        if form is None:
            raise ConfigurationError(
                f"a report has no form for '{path.name}'",
                code="evals/report",
                hint=f"end the name with one of {', '.join(forms)}",
            )
        path.write_bytes(form().encode("utf-8", "backslashreplace"))
