"""Real chat templates, each with the small tokenizer and its family's special tokens: a renderer without a download."""

from functools import lru_cache
from importlib import resources
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from rft_agent_sdk.gateway.render import Renderer, load_renderer
from rft_agent_sdk.types import Message, ToolCall, ToolSpec

FOLDER = Path(__file__).parents[1] / "data" / "templates"
CHATML = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>"),
    *("</tool_call>", "<tool_response>", "</tool_response>"),
)
MISTRAL = (
    *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[THINK]", "[/THINK]"),
)
HARMONY = (
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"),
    "<|return|>",
)
GEMMA = (
    *("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", '<|"|>'),
    *("<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
    *("<|image>", "<|image|>", "<image|>"),
)
LLAMA = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
)
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
TOKENS = {
    "gemma4": GEMMA,
    "gpt-oss": HARMONY,
    "llama": LLAMA,
    "ministral-3-reasoning": MISTRAL,
    "mistral-nemo": MISTRAL,
    "mistral-small-3.2": MISTRAL,
    "qwen3": CHATML,
    "qwen3.training": CHATML,
    "qwen3-coder": CHATML,
    "qwen3-instruct-2507": CHATML,
    "qwen3.5-nothink": CHATML,
    "qwen3.5-think": CHATML,
    "qwen3.6": CHATML,
    "smollm2-135m": CHATML,
    "smollm3": CHATML,
}
"""Every template, and the tokens that its family adds."""

LLAMA_TEMPLATE = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + ('ipython' if message.role == 'tool' else message.role) + '<|end_header_id|>\\n\\n' }}
    {%- if message.tool_calls %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}' }}
    {%- else %}
        {%- if tools and loop.first %}{{- 'Tools: ' + tools | tojson + '\\n' }}{%- endif %}
        {{- message.content }}
    {%- endif %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
"""A template in the manner of Llama 3, written for these tests."""

GUESS = ToolSpec(
    "guess_word",
    "Guess the word.",
    {
        "type": "object",
        "properties": {"guess": {"type": "string", "description": "A word."}},
        "required": ["guess"],
    },
)


def source(name: str) -> str:
    """The text of a template."""
    if name == "llama":
        return LLAMA_TEMPLATE
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


@lru_cache
def tokenizer(*tokens: str) -> Tokenizer:
    """The small tokenizer with further special tokens."""
    data = resources.files("rft_agent_sdk.gateway.data").joinpath("tokenizer.json")
    made = Tokenizer.from_str(data.read_text(encoding="utf-8"))
    made.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
    return made


@lru_cache
def renderer(name: str, **kwargs: bool) -> Renderer:
    """The renderer that heals a template."""
    return load_renderer(
        tokenizer=tokenizer(*TOKENS[name]), template=source(name), chat_template_kwargs=kwargs
    )


def text_of(made: Renderer, ids: list[int]) -> str:
    """Ids as text, control tokens included."""
    parsed = made.parse(ids, prompt=[], tools=[], finish_reason="stop")
    return parsed.raw_text


def call(guess: str, number: int = 1) -> ToolCall:
    """A call of the tool."""
    return ToolCall(GUESS.name, f'{{"guess": "{guess}"}}', f"call_{number}")


def result(text: str, number: int = 1) -> Message:
    """The answer to a call."""
    return Message("tool", text, tool_call_id=f"call_{number}")
