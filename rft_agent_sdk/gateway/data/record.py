"""Makes the corpus of the small tokenizer: games of Wordle as its reference policies play them.

What is kept are the distinct lines of the conversations, calls in the spacings that models and clients
write, and plain sentences of the kind that models think in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from rft_agent_sdk.environment import Environment, load_environment
from rft_agent_sdk.types import Message

_GAMES = 160
_ENVIRONMENT = "wordle"
_SENTENCES = (
    "Let me think about this step by step.",
    "The first guess should tell as much as possible about the vowels and the common consonants.",
    "I will start with {word}, which has many common letters.",
    "My next guess is {word}.",
    "{word} fits all that is known so far: the green letters are in place and the yellow ones are in it.",
    "{word} cannot be the answer, because a gray letter would be in it.",
    "So the word has {a} and {b}, but no {c}.",
    "The letter {a} is in the word, but not in this place, so I try it in another one.",
    "What words end in {c}{d}{e}? There is {word}, for example.",
    "There are a few words left that would fit: {word} and some others.",
    "I have not used {b} yet. Only one guess is left, so it should be {word}.",
    "Okay, the answer must be {word}. Done!",
)


def record() -> str:
    """Return the corpus: distinct lines, in order of first appearance."""
    environment = load_environment(_ENVIRONMENT)
    lines: dict[str, None] = {}
    for number, task in enumerate(environment.tasks("train", _GAMES)):
        policy = ("solver", "random")[number % 2]
        for text in _played(environment, task, policy):
            lines.update(dict.fromkeys(text.splitlines()))
    return "".join(f"{line}\n" for line in lines if line.strip())


def _played(environment: Environment, task: str, policy: str) -> Iterator[str]:
    """Yield every text of one game."""
    episode = environment.start(task)
    answer = environment.policies()[policy]
    history = [Message("system", episode.system_prompt), Message("user", episode.prompt)]
    yield from (episode.system_prompt, episode.prompt)
    yield from (json.dumps(tool.as_openai()) for tool in episode.tools)
    while not episode.done:
        reply = answer(history, episode.tools)
        history.append(reply)
        yield reply.text
        for call in reply.tool_calls:
            arguments = json.loads(call.arguments)
            yield json.dumps({"name": call.name, "arguments": arguments})
            yield json.dumps({"name": call.name, "arguments": arguments}, separators=(",", ":"))
            for word in arguments.values():
                yield from _thoughts(str(word), len(history))
            result = episode.call(call.name, arguments)
            history.append(Message("tool", result.text, tool_call_id=call.id))
            yield result.text


def _thoughts(word: str, number: int) -> Iterator[str]:
    for offset in range(2):
        sentence = _SENTENCES[(number + offset * 5) % len(_SENTENCES)]
        for spelled, spare in ((word.upper(), "E"), (word, "e")):
            letters = dict.fromkeys("abcde", spare)
            letters.update(zip("abcde", word.upper(), strict=False))
            yield sentence.format(**letters, word=spelled)
