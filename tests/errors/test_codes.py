"""Every error code that the source raises is explained in docs/errors.md, and nothing else is."""

from __future__ import annotations

from tests.support.error_codes import documented, draft, raised


def test_every_code_is_documented_once() -> None:
    """No code is missing, none is listed twice, and none is left over from code that is gone."""
    found, listed = raised(), documented()
    missing = [draft(entry) + f"  {', '.join(entry.places[:2])}" for code, entry in found.items() if code not in listed]
    assert not missing, "add to docs/errors.md:\n" + "\n".join(missing)
    assert sorted(listed) == sorted(set(listed))
    assert sorted(set(listed) - set(found)) == []
