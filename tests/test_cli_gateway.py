"""`rft gateway` capturing tokens, and `rft gateway conform`, run as a person runs them."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest

from rft_agent_sdk import Outcome
from rft_agent_sdk.gateway import RemoteGateway
from rft_agent_sdk.gateway.render import load_renderer
from tests.gateway.engines import FakeVLLM, words
from tests.gateway.players import KEY, KEY_VARIABLE, gateway_process
from tests.gateway.templates import FOLDER
from tests.test_cli import RFT, ROOT, rft

CHECKS = 12
QWEN3 = str(FOLDER / "qwen3.jinja")
START: Any = [{"role": "user", "content": "go"}]


def ask(config) -> str:
    with openai.OpenAI(base_url=config["base_url"], api_key=config["api_key"]) as api:
        reply = api.chat.completions.create(model="m", messages=START)
    return reply.choices[0].message.content or ""


def test_conform_prints_one_line_a_check_and_the_mode():
    done = rft("gateway", "conform", QWEN3)
    assert done.returncode == 0, done.stderr
    title, *checks, mode = done.stdout.splitlines()
    assert "hermes" in title
    assert [line.split()[0] for line in checks] == ["ok"] * CHECKS
    assert any(line.startswith("ok    truncation while thinking") for line in checks)
    assert mode.startswith("mode heal: ")
    assert done.stderr == ""


def test_conform_draws_a_table_in_a_terminal():
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*RFT, "gateway", "conform", QWEN3], cwd=ROOT, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0, done.stderr
    assert "┃" in shown
    assert "parallel calls" in shown


def test_conform_tells_programs_in_json():
    done = rft("gateway", "conform", str(FOLDER / "mistral-small-3.2.jinja"), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    failed = {check["name"] for check in report["checks"] if not check["passed"]}
    assert report["mode"] == "heal"
    assert report["passed"] is False
    assert "new user message" in failed
    assert "tool result" not in failed


def test_conform_says_when_every_turn_will_be_a_branch_and_that_this_is_sound():
    done = rft("gateway", "conform", str(FOLDER / "mistral-nemo.jinja"))
    assert done.returncode == 0, done.stderr
    assert "mode branch: " in done.stdout
    assert done.stdout.count("FAIL") == CHECKS - 3


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ messages }}", "none of the known formats"),
        ("{% if %}<tool_call>", "does not compile"),
        ("<tool_call>{{ raise_exception('never') }}", ""),
    ],
)
def test_conform_fails_where_no_turn_can_be_captured(tmp_path, template, says):
    path = tmp_path / "chat_template.jinja"
    path.write_text(template)
    done = rft("gateway", "conform", str(path))
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    if not says:
        assert "FAIL  tool result                         the chat template refuses" in done.stdout


@pytest.mark.parametrize("command", [("conform",), ("--template",)])
def test_a_template_that_is_no_text_is_told_without_a_traceback(tmp_path, command):
    path = tmp_path / "chat_template.jinja"
    path.write_bytes(b"\x93NUMPY")
    done = rft("gateway", *command, str(path))
    assert done.returncode == 2
    assert "no UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


def test_conform_takes_a_models_folder_its_arguments_and_a_family(tmp_path):
    # The small tokenizer's files are a model's folder.
    folder = ROOT / "rft_agent_sdk" / "gateway" / "data"
    assert rft("gateway", "conform", str(folder)).returncode == 0
    (tmp_path / "plain.jinja").write_text(
        "{% for m in messages %}<|a|>{{ m.role }}:{{ m.content }}{% if arguments_shown %}"
        "{{ m.tool_calls }}{% endif %}<|im_end|>{% endfor %}<|a|>assistant:"
    )
    options = ("--family", "hermes", "--chat-template-kwargs", '{"arguments_shown": true}')
    done = rft("gateway", "conform", str(tmp_path / "plain.jinja"), *options, "--json")
    assert json.loads(done.stdout)["renderer"].endswith("(hermes)")
    tokenizer = ("--tokenizer", str(folder))
    assert rft("gateway", "conform", QWEN3, *tokenizer).returncode == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["conform"], "MODEL_OR_TEMPLATE"),
        (["conform", "absent.jinja"], "absent.jinja"),
        (["conform", QWEN3, "--tokenizer", QWEN3], "tokenizer.json"),
        (["conform", QWEN3, "--tokenizer", "absent"], "absent"),
        (["conform", QWEN3, "--chat-template-kwargs", "{"], "JSON"),
        (["conform", QWEN3, "--chat-template-kwargs", "[]"], "JSON object"),
        (["conform", str(ROOT / "tests")], "tokenizer.json"),
        (["nonsense"], "nonsense"),
        (["--log-dir", "logs"], "--capture"),
        (["--history-mode", "tree"], "--capture"),
        (["--capture", "--sampler", "openai:http://127.0.0.1:9"], "token ids"),
        (["--capture", "--sampler", "nobody"], "solver"),
        (["--sampler", "vllm:127.0.0.1:8000"], "http"),
        (["--template", "absent.jinja"], "absent.jinja"),
        (["--capture", "--admin-key-env", "RFT_ABSENT"], "RFT_ABSENT"),
        (["--capture", "--admin-key-env", "RFT_SHORT"], "16"),
    ],
)
def test_what_the_person_can_fix_is_one_sentence_and_exit_code_2(args, says):
    done = rft("gateway", *args, env={"RFT_SHORT": "too-short-a-key"})
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "too-short-a-key" not in done.stderr


def test_a_capturing_gateway_is_opened_with_a_key_that_is_on_no_command_line():
    with gateway_process("marked", "--history-mode", "tree") as gateway:
        listed = Path(f"/proc/{gateway.process.pid}/cmdline")
        if listed.exists():
            assert KEY.encode() not in listed.read_bytes()
        with RemoteGateway(gateway.url, KEY) as far:
            assert far.stats()["sessions"]["open"] == 0
            assert far.open().seal().outcome is Outcome.NO_SAMPLING


def test_a_gateway_samples_at_the_engine_that_is_named():
    renderer = load_renderer()
    engine = FakeVLLM(words(40, 41, 42, min(renderer.stop_ids)))
    with (
        engine.served() as url,
        gateway_process(f"vllm:{url}#adapter") as gateway,
        RemoteGateway(gateway.url, KEY) as far,
    ):
        session = far.open()
        ask(session.config())
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    (sample,) = trajectory.samples
    assert list(sample.token_ids[sample.spans[0].start :]) == [token for token, _ in engine.script]
    assert list(sample.logprobs[sample.spans[0].start :]) == [lp for _, lp in engine.script]
    assert engine.seen[0]["model"] == "adapter"


def test_a_gateway_without_a_key_says_that_it_opens_nothing():
    done = subprocess.Popen(
        [sys.executable, *RFT[1:], "gateway", "--capture", "--port", "0"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={name: text for name, text in os.environ.items() if name != KEY_VARIABLE},
    )
    try:
        assert done.stderr is not None
        line = done.stderr.readline()
        while "gateway on" not in line:
            line = done.stderr.readline()
        assert "--admin-key-env" in line
        assert "captures tokens" in line
    finally:
        done.kill()
        done.communicate()
