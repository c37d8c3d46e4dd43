import json
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rft_agent_sdk.gateway.data import build
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.types import Message
from tests.gateway.templates import GUESS, call, result, text_of

FOLDER = Path(build.__file__).parent
SMALL = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def test_the_tokenizer_is_rebuilt_byte_for_byte(tmp_path):
    """In a process of its own, since the number of threads is settled by the first use."""
    code = (
        "from rft_agent_sdk.gateway.data.build import FOLDER, build; import sys;"
        "sys.stdout.buffer.write(build((FOLDER / 'corpus.txt').read_text('utf-8')).encode())"
    )
    built = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert built == (FOLDER / "tokenizer.json").read_bytes()


@settings(deadline=None)
@given(st.text(max_size=60))
def test_the_small_tokenizer_keeps_any_text(text):
    ids = SMALL.encode(text, add_special_tokens=False).ids
    assert SMALL.decode(ids, skip_special_tokens=False) == text


def test_the_small_tokenizer_has_the_marks_of_qwen_3_and_few_pieces():
    assert SMALL.get_vocab_size() == build.VOCABULARY_SIZE
    for token in (*build.SPECIAL_TOKENS, *build.MARKS):
        assert SMALL.encode(token, add_special_tokens=False).ids == [SMALL.token_to_id(token)]


def test_the_small_tokenizer_writes_a_game_in_few_tokens():
    text = "Guess 1 of 6: SLATE\nMarks: S gray, L gray, A gray, T gray, E green"
    assert len(SMALL.encode(text).ids) < len(text) / 2.2


def test_the_default_renderer_needs_nothing_but_this_package():
    made = load_renderer()
    history = [Message("system", "SYS"), Message("user", "go")]
    prompt = made.render(history, [GUESS])
    sampled: list[int] = []
    for number in range(3):
        turn = Message("assistant", "So.", "Hm.", (call("CRANE", number),))
        sampled = made.write(turn, prompt=prompt)
        history += [turn, result("X", number)]
        added = made.extend(
            prompt + sampled,
            history[:-1],
            history[-1:],
            [GUESS],
            sampled=sampled,
            finish_reason="stop",
        )
        assert added is not None
        prompt = prompt + sampled + added
    assert prompt == made.render(history, [GUESS])
    assert text_of(made, sampled) == (
        '<think>\nHm.\n</think>\n\nSo.\n<tool_call>\n{"name": "guess_word", "arguments": {"guess": "CRANE"}}\n'
        "</tool_call><|im_end|>"
    )


def test_the_default_renderer_keeps_prefixes_with_thinking_off():
    made = load_renderer(chat_template_kwargs={"enable_thinking": False})
    history = [Message("user", "go")]
    prompt = made.render(history, [])
    turn, new = Message("assistant", "Hi."), Message("user", "And?")
    sampled = made.write(turn, prompt=prompt)
    added = made.extend(
        prompt + sampled, [*history, turn], [new], [], sampled=sampled, finish_reason="stop"
    )
    assert prompt + sampled + (added or []) == made.render([*history, turn, new], [])


def test_the_tokenizers_folder_says_what_a_loader_of_models_wants_to_know():
    config = json.loads((FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert SMALL.token_to_id(config["eos_token"]) is not None
    assert SMALL.token_to_id(config["pad_token"]) is not None
