"""How a training-session server says no: HTTP status, AWS error type and message."""

from __future__ import annotations


class Refusal(Exception):
    """A call that is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status."""
        self.code = code
        """The service's name of the error."""
        self.message = message
        """What is wrong, for a person."""


def invalid(message: str) -> Refusal:
    """Return a ValidationException: the request is wrong."""
    return Refusal(400, "ValidationException", message)
