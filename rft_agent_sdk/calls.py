"""What became of a rollout's policy calls."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from rft_agent_sdk.types import JSON, Usage


@dataclass
class PolicyCalls:
    """What became of one rollout's policy calls; every HTTP attempt counts as one."""

    attempted: int = 0
    succeeded: int = 0
    """Attempts answered in full with a completion."""
    throttled: int = 0
    """Attempts answered 429."""
    failed: int = 0
    """Attempts that ended without a completion, throttled ones included."""
    truncated: int = 0
    """Completions that ended at the token limit."""
    usage: Usage = field(default_factory=Usage)
    failing: bool = False
    """Whether the latest finished attempt failed on the endpoint's side."""
    last_error: str | None = None
    """Why the latest failed attempt failed; never holds a secret."""
    first_body: JSON | None = None
    """Body of the first request that was tried."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self) -> None:
        """Count an attempt."""
        with self._lock:
            self.attempted += 1

    def fail(self, error: str, *, status: int | None = None) -> None:
        """Count an attempt that brought no completion; `status` is `None` without a response."""
        with self._lock:
            self.failed += 1
            self.throttled += status == 429
            self.failing = status is None or status == 429 or status >= 500
            self.last_error = error

    def succeed(self, finish_reason: str | None, usage: Usage) -> None:
        """Count an attempt that brought a whole completion."""
        with self._lock:
            self.succeeded += 1
            self.truncated += finish_reason == "length"
            self.failing = False
            self.usage = Usage(
                self.usage.prompt_tokens + usage.prompt_tokens,
                self.usage.completion_tokens + usage.completion_tokens,
            )
