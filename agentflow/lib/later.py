"""Parts of the package that are imported at their first use, since most processes never use them."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module


async def loaded(module: str) -> None:
    """Import a module, on a thread unless it is there: an import may take a tenth of a second, which the event loop cannot spare."""
    imported = sys.modules.get(module)
    if imported is None or getattr(imported.__spec__, "_initializing", False):  # another thread may be importing it
        await asyncio.to_thread(import_module, module)
