"""Make the table of opening guesses from the word lists.

    python -m environments.wordle.data.build_openers [FOLDER]

writes `openers.txt`: each word of the dictionary and the expected information in bits, to four
decimals, that it gives as a first guess when every answer is as likely. Takes a second.
"""

from __future__ import annotations

import sys
from pathlib import Path

from environments.wordle.words import answer_index, dictionary


def opener_lines() -> list[str]:
    """Return the lines of the table, in the order of the dictionary."""
    index = answer_index()
    return [f"{word} {index.information(index.everything, word):.4f}\n" for word in dictionary()]


def main(arguments: list[str]) -> None:
    """Write the table."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    lines = opener_lines()
    (folder / "openers.txt").write_bytes("".join(lines).encode())
    sys.stdout.write(f"{len(lines)} openers\n")


if __name__ == "__main__":
    main(sys.argv[1:])
