"""Bodies of HTTP responses whose reader stops before their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any


async def run_out(parts: AsyncIterator[Any]) -> None:
    """Run a body's iterator, and those inside it, to their ends. Never raises but when cancelled.

    To be called where its connection is closed, so that the next read ends it, or fails, at once. A generator
    that is dropped where it stands is closed in a task of its own that nobody waits for, and only then the one
    inside it, a dozen of them under a response: a loop that ends in the meantime leaves the rest unclosed.
    """
    with suppress(Exception):
        async for _ in parts:
            pass
