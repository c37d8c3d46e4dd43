"""When two messages are the same message, told by keys.

A client rarely echoes byte for byte what it was served: it re-spaces and re-orders arguments, spells
numbers its own way, gives calls ids of its own, and drops reasoning. Keys leave out exactly that.
Text is compared exactly: a client that strips or rewrites it has changed what the policy reads.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b

from rft_agent_sdk.types import Message, ToolSpec

_KEY_BYTES = 16
_SHORT = 256
"""Characters of arguments up to which their one spelling is remembered."""
_NO_ARGUMENTS = ("", "null", "{}")
"""What models write, and what clients make of it, for a call without arguments."""


def reply_key(message: Message) -> Hashable:
    """Return what an echo of a sampled reply has in common with it: text, names, arguments.

    The key holds the message's own text, which whoever keeps the message holds anyway.
    """
    return message.text, _calls(message)


def context_key(message: Message) -> Hashable:
    """Return what identifies a message nobody here sampled; of calls, all but their ids."""
    return (
        message.role,
        message.text,
        message.reasoning or "",
        _calls(message),
        message.tool_call_id,
        message.is_error,
    )


def tools_key(tools: Sequence[ToolSpec]) -> str:
    """Return what identifies a list of tools, in order; empty for none.

    The order of keys inside a schema does not count.
    """
    if not tools:
        return ""
    entries = [[tool.name, tool.description, tool.parameters] for tool in tools]
    # ASCII, so that a lone surrogate in a text is no error
    return blake2b(_dumps(entries).encode("ascii"), digest_size=_KEY_BYTES).hexdigest()


def canonical_arguments(arguments: str) -> str:
    """Return arguments in one spelling, if they are JSON, else as they are.

    An integral float becomes an integer, as every JavaScript client writes it.
    """
    return _short_spelling(arguments) if len(arguments) <= _SHORT else _spelling(arguments)


def _spelling(arguments: str) -> str:
    if arguments.strip() in _NO_ARGUMENTS:
        return "{}"
    try:
        return _dumps(_parse(arguments))
    except (ValueError, RecursionError):
        # The mark keeps it apart from any JSON text.
        return f"!{arguments}"


_short_spelling = lru_cache(4096)(_spelling)


def _calls(message: Message) -> tuple[tuple[str, str], ...]:
    return tuple((call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


# Made once: a long history asks for hundreds of keys.
_dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_parse = json.JSONDecoder(parse_float=_number, parse_constant=_refuse).decode
