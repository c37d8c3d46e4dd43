"""`rft local import-gguf`: a GGUF file made here becomes a folder that trains."""

import random

import pytest
import torch

from rft_agent_sdk.cli import main
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.local.model import ModelSettings, load
from rft_agent_sdk.local.score import score
from rft_agent_sdk.types import Message, ToolSpec

pytestmark = pytest.mark.local
gguf = pytest.importorskip("gguf")

PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
"""Tells a model of no tool."""
WIDTH, INNER, HEADS = 32, 64, 2  # a block of Q8_0 is 32 numbers
Q8 = gguf.GGMLQuantizationType.Q8_0


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A Llama of one layer, its matrices quantised, with a tokenizer of bytes."""
    path = tmp_path_factory.mktemp("made") / "small.gguf"
    # the printable characters that byte-level tokenizers write bytes as
    characters = [chr(n) for n in (*range(33, 127), *range(161, 173), *range(174, 256))]
    characters += [chr(256 + n) for n in range(256 - len(characters))]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *characters, "th"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(PLAIN)
    add_weights(writer, len(tokens))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_weights(writer, vocabulary):
    torch.manual_seed(0)
    for name, shape in {
        "token_embd": (vocabulary, WIDTH),
        "blk.0.attn_q": (WIDTH, WIDTH),
        "blk.0.attn_k": (WIDTH, WIDTH),
        "blk.0.attn_v": (WIDTH, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH),
        "blk.0.ffn_gate": (INNER, WIDTH),
        "blk.0.ffn_up": (INNER, WIDTH),
        "blk.0.ffn_down": (WIDTH, INNER),
    }.items():
        numbers = gguf.quants.quantize((torch.randn(shape) * 0.3).numpy(), Q8)
        writer.add_tensor(f"{name}.weight", numbers, raw_dtype=Q8)
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", torch.ones(WIDTH).numpy())


def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["local", "import-gguf", *map(str, arguments)])
    return exit_.value.code


def test_a_file_becomes_a_folder_that_is_rendered_sampled_and_trained(file, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(file, "--out", out, "--chat-template", "tools", "--dtype", "float32") == 0
    said = capsys.readouterr()
    assert "million parameters in float32" in said.out
    assert "no place for tools" not in said.err
    tool = ToolSpec("look", "Look.", {"type": "object"})
    renderer = load_renderer(out)
    ids = renderer.render([Message("user", "then")], [tool])
    model = load(ModelSettings(str(out), device="cpu", lora_rank=2))
    text = model.tokenizer.decode(ids)
    assert '"name": "look"' in text
    assert text.endswith("<|im_start|>assistant\n")
    assert ids[0] == 1
    assert (
        model.tokenizer.apply_chat_template(
            [{"role": "user", "content": "then"}],
            tools=[tool.as_openai()],
            add_generation_prompt=True,
            return_dict=False,
        )
        == ids
    )
    assert model.eos_ids == {2}
    (stored,) = (one for one in gguf.GGUFReader(file).tensors if one.name == "token_embd.weight")
    wanted = torch.from_numpy(gguf.quants.dequantize(stored.data, Q8))
    assert torch.equal(model.core.get_input_embeddings().weight, wanted)
    assert all(value is None or value < 0 for value in score(model, ids[:100]).logprobs)
    assert list(tmp_path.iterdir()) == [out]


def test_a_template_without_a_place_for_tools_is_told_of(file, tmp_path, capsys):
    assert run(file, "--out", tmp_path / "out") == 0
    assert "no place for tools" in capsys.readouterr().err
    assert load(ModelSettings(str(tmp_path / "out"), device="cpu")).dtype == torch.float32


def test_what_is_no_gguf_file_or_no_free_folder_is_refused(file, tmp_path, capsys):
    (tmp_path / "bad.gguf").write_bytes(b"GGUX" + random.Random(0).randbytes(200))
    assert run(tmp_path / "bad.gguf", "--out", tmp_path / "out") == 2
    assert "of a kind that transformers reads" in capsys.readouterr().err
    assert run(tmp_path / "none.gguf", "--out", tmp_path / "out") == 2
    assert "which is no file" in capsys.readouterr().err
    assert run(file, "--out", tmp_path) == 2
    assert "not there yet" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["bad.gguf"]
