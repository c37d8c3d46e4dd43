"""The `aws-chunked` content encoding: sizes in hex, each with its chunk, then trailers."""

from __future__ import annotations


def unchunk(body: bytes) -> bytes:
    """Return the content of a body in that encoding; its checksums are not verified."""
    content, rest = bytearray(), body
    while True:
        size_line, _, rest = rest.partition(b"\r\n")
        size = int(size_line.partition(b";")[0] or b"0", 16)
        if size == 0:
            return bytes(content)
        content += rest[:size]
        rest = rest[size + 2 :]
