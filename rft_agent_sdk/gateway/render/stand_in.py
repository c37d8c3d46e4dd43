"""A tokenizer for a chat template that came without its own: this package's, with the template's control tokens.

For checks of the template alone. What it says of a real model holds as far as the model's own tokenizer
has the same control tokens and otherwise only splits text.
"""

from __future__ import annotations

import re
from importlib import resources

from tokenizers import AddedToken, Tokenizer

from rft_agent_sdk.gateway.parse import FAMILIES, family_of

_CONTROL = re.compile(
    r"<\|[^\s|<>]+\|?>|<[a-z_]+\|>|\[/?[A-Z][A-Z_]+\]|</?s>|<[be]os>|</?(?:think|tool_call|tool_response)>"
)
"""How templates spell control tokens: ChatML, Harmony, Llama, Gemma, Mistral."""


def stand_in_tokenizer(template: str, family: str | None = None) -> Tokenizer:
    """Return a tokenizer that knows every control token a template and its family spell.

    Args:
        template: Its text.
        family: How turns are written, where the template does not tell; a name of `FAMILIES`.

    Raises:
        ChatTemplateError: Nobody here can parse what such a template's models write.
    """
    spoken = FAMILIES.get(family or "") or family_of(template)
    tokens = {*_CONTROL.findall(template), *spoken.marks, *spoken.closers, *spoken.stops}
    tokens = {token for token in tokens if _CONTROL.fullmatch(token)}
    data = resources.files("rft_agent_sdk.gateway.data").joinpath("tokenizer.json")
    made = Tokenizer.from_str(data.read_text("utf-8"))
    made.add_special_tokens([AddedToken(token, normalized=False) for token in sorted(tokens)])
    return made
