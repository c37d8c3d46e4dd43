"""The conversation that both gateways are asked to serve: Wordle by tool calls, the same for all sides.

Only the standard library is imported here, since the peer's environment has nothing of ours.
"""

import json
import random
from typing import Any

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "guess_word",
        "description": "Submit a guess of five letters and read how each letter is marked.",
        "parameters": {
            "type": "object",
            "properties": {"guess": {"type": "string", "description": "A five-letter word."}},
            "required": ["guess"],
        },
    },
}
REPLY = (
    '<tool_call>\n{"name": "guess_word", "arguments": {"guess": "crane"}}\n</tool_call><|im_end|>'
)
"""What the null sampler samples, every time."""
SYSTEM = (
    "You play Wordle. There is one hidden word of five letters and you have six guesses. After each "
    "guess every letter is marked: G for the right letter in the right place, Y for a letter that is "
    "elsewhere in the word, - for one that is not in it. Call guess_word once a turn."
)
START = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "Find the hidden word. Guess now."},
]


def results(count: int) -> list[str]:
    """Return `count` different tool results of some 100 to 300 tokens, always the same ones."""
    chance = random.Random(7)
    return [_result(chance) for _ in range(count)]


def _result(chance: random.Random) -> str:
    lines = []
    for number in range(1, chance.randint(3, 12)):
        word = "".join(chance.choices("abcdefghijklmnoprstuvwy", k=5))
        marks = "".join(chance.choices("GY-", weights=(1, 2, 4), k=5))
        lines.append(f"Guess {number}/6: {word.upper()} is marked {marks}")
    unseen = "".join(sorted(chance.sample("abcdefghijklmnopqrstuvwxyz", 14)))
    known = json.dumps({letter: chance.choice("GY-") for letter in chance.sample("aeioustrln", 4)})
    lines.append(f"Letters not tried so far: {' '.join(unseen)}. Known: {known}.")
    return "\n".join(lines)
