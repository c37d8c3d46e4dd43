"""The command line, run as a person runs it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.servers import JOB_ARN, serving

ROOT = Path(__file__).parent.parent
RFT = [sys.executable, "-m", "rft_agent_sdk.cli"]
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


def rft(*args, stdin="", env=None, cwd=ROOT, timeout=60):
    return subprocess.run(
        [*RFT, *args],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        timeout=timeout,
        check=False,
    )


@contextmanager
def running(*args, env=None):
    """Run a serving verb; yields (process, port) once the port answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [*RFT, *args, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
    )
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process, port
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stopped(process):
    """Interrupt a process and return its exit code and what it logged."""
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=30)
    return process.returncode, log


def test_the_demo_plays_the_payload_through_the_deployed_file(tmp_path):
    done = rft("demo", "--runs", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"S +T +O +I +C", done.stdout)
    assert re.search(r"reward +\+1\.\d+", done.stdout)
    record = json.loads(next(tmp_path.glob("demo-*/rollout.json")).read_text())
    assert record["state"] == "REWARD_RECEIVED"
    assert record["rewards"] == [record["response"]["reward"]]
    assert record["response"]["_rft"]["components"]["solved"] == 1
    assert len(record["turns"]) == record["response"]["_rft"]["calls"]["succeeded"]
    assert "AKIA" not in json.dumps(record)
    assert str(next(tmp_path.glob("demo-*"))) in done.stdout


def test_the_demo_outside_a_checkout_says_what_to_do(tmp_path):
    done = rft("demo", "--payload", str(ROOT / "payload.json"), cwd=tmp_path)
    assert done.returncode == 2
    assert "run from the project's root" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_serve_and_invoke_without_credentials_give_the_floor_and_one_line_why():
    with running("serve") as (process, port):
        done = rft("invoke", "--payload", "payload.json", "--url", f"http://127.0.0.1:{port}")
        code, log = stopped(process)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reward"] == -1.5
    lines = [line for line in log.splitlines() if "outcome=" in line]
    assert len(lines) == 1
    assert "no AWS credentials" in lines[0]
    assert code in (0, 130)
    assert "Traceback" not in log


def test_with_credentials_a_gateway_that_knows_no_job_says_so_in_the_agents_log():
    with running("gateway") as (_, gateway_port):
        env = {**KEYS, "RFT_RUNTIME_ENDPOINT": f"http://127.0.0.1:{gateway_port}"}
        with running("serve", env=env) as (process, port):
            done = rft("invoke", "--url", f"http://127.0.0.1:{port}")
            _, log = stopped(process)
    assert json.loads(done.stdout)["reward"] == -1.5
    assert "400" in log
    assert "Could not find job" in log


def test_a_gateway_with_a_registered_job_plays_it():
    payload = json.loads((ROOT / "payload.json").read_text())
    arn = payload["metadata"]["jobArn"]
    with running("gateway", "--job", arn, "--policy", "random") as (_, gateway_port):
        env = {**KEYS, "RFT_RUNTIME_ENDPOINT": f"http://127.0.0.1:{gateway_port}"}
        with running("serve", env=env) as (_, port):
            done = rft(
                "invoke",
                "--payload",
                "-",
                "--url",
                f"http://127.0.0.1:{port}",
                stdin=json.dumps(payload),
            )
    body = json.loads(done.stdout)
    assert body["_rft"]["reported"] is True
    assert body["_rft"]["outcome"] == "completed"


def test_the_function_of_an_entrypoint_is_served_as_on_infrastructure_of_one_s_own():
    with running("serve", "--app", "agentcore/app/main.py:invoke") as (process, port):
        health = requests.get(f"http://127.0.0.1:{port}/health", timeout=10)
        code, log = stopped(process)
    assert health.json() == {"status": "healthy", "rollouts": 0, "max_rollouts": 512}
    assert code in (0, 130)
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["invoke", "--session-id", "default"], "33"),
        (["invoke", "--payload", "absent.json"], "absent.json"),
        (["invoke", "--url", "http://127.0.0.1:9"], "rft serve"),
        (["invoke", "--url", "http://127.0.0.1:9", "--arn", "x"], "not both"),
        (["invoke", "--url", "127.0.0.1:9"], "cannot be called"),
        (["invoke", "--timeout", "0"], "--timeout"),
        (["invoke", "--arn", "arn:aws:lambda:us-west-2:123456789012:function:f"], "runtime ARN"),
        (["serve", "--app", "absent.py"], "absent.py"),
        (["serve", "--app", "tests.servers:JOB_ARN"], "no ASGI app"),
        (["gateway", "--job", JOB_ARN, "--policy", "nobody"], "solver"),
        (["gateway", "--policy", "nobody"], "solver"),
        (["gateway", "--host", "0.0.0.0"], "allow_remote"),
        (["gateway", "--job", "not-an-arn"], "job ARN"),
        (["play", "--environment", "nowhere"], "wordle"),
        (["play", "--task", "plain text"], "JSON"),
        (["nonsense"], "nonsense"),
    ],
)
def test_what_the_person_can_fix_is_one_sentence_and_exit_code_2(args, says):
    done = rft(*args)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("verb", "what"), [("serve", "Address already in use"), ("gateway", "Address already in use")]
)
def test_a_port_that_is_taken_is_said_in_one_line(verb, what):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = rft(verb, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert what in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import json\nimport absent_module\n", "line 2, in <module>"),
        ("def (\n", "SyntaxError"),
        ("raise RuntimeError('no key')\n", "RuntimeError: no key"),
    ],
)
def test_an_app_that_cannot_be_imported_shows_its_own_lines_only(text, says, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    for target in ("mine.py", "mine:app"):
        done = rft("serve", "--app", target, cwd=tmp_path)
        assert done.returncode == 2
        assert says in done.stderr
        assert "rft_agent_sdk" not in done.stderr.replace(str(tmp_path), "")
        assert "importlib" not in done.stderr


def test_invoking_a_deployed_agent_without_credentials_says_what_to_export():
    arn = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/mine-abc"
    nowhere = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_CONFIG_FILE": os.devnull,
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [*RFT, "invoke", "--arn", arn],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**env, **nowhere},
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "export AWS_PROFILE" in done.stderr


def test_a_demo_whose_policy_server_is_down_fails_and_says_so(tmp_path):
    done = rft("demo", "--policy", "openai:http://127.0.0.1:9/v1", "--runs", str(tmp_path))
    assert done.returncode == 1
    assert "infrastructure_error" in done.stderr
    assert "the policy server failed" in done.stderr
    assert next(tmp_path.glob("demo-*/rollout.json")).exists()


def test_a_part_of_the_extra_that_is_missing_is_named_with_the_command_that_installs_it():
    code = (
        "import sys; sys.modules['rich'] = None; from rft_agent_sdk.cli import main; main(['play'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert "rich is missing" in done.stderr
    assert "pip install 'rft-agent-sdk[cli]'" in done.stderr


def test_help_names_every_verb_and_the_verbs_explain_themselves():
    listed = rft("--help").stdout
    assert re.fullmatch(r"rft, version [\d.]+\n", rft("--version").stdout)
    for verb in ("demo", "gateway", "invoke", "play", "serve"):
        assert verb in listed
        assert rft(verb, "--help").returncode == 0


def test_play_lets_a_person_solve_a_game():
    task = json.dumps({"prompt": "Go", "answer": "stoic"})
    done = rft("play", "--task", task, stdin="slate\nxx\nSTOIC\n")
    assert done.returncode == 0, done.stderr
    assert "Solved in 2 guesses" in done.stdout
    assert re.search(r"reward \+1\.4\d", done.stdout)


def test_play_ends_cleanly_when_given_up_or_at_the_end_of_input():
    task = json.dumps({"prompt": "Go", "answer": "stoic"})
    assert rft("play", "--task", task, stdin="slate\n\n").returncode == 0
    ended = rft("play", "--task", task, stdin="slate\n")
    assert ended.returncode == 0
    assert "reward -0." in ended.stdout
    assert "Traceback" not in ended.stderr


COUNT = """
from rft_agent_sdk import Environment, Episode, Reward, ToolResult, ToolSpec

class Count(Episode):
    system_prompt, prompt, done = "", "Say 3.", False
    tools = (ToolSpec("say", "Say.", {"type": "object", "properties": {"n": {"type": "integer"}}}),)
    acted = True

    def call(self, name, arguments, *, recovered=False):
        self.done = arguments["n"] == 3
        return ToolResult(f"got {arguments!r}")

    def reward(self, outcome):
        return Reward(1.0 if self.done else 0.0)

class Counting(Environment):
    name, floor = "counting", -1.0

    def start(self, task):
        return Count()
"""


def test_play_finds_an_environment_in_this_folder_and_survives_slips_of_the_keyboard(tmp_path):
    (tmp_path / "counting.py").write_text(COUNT)
    script = "import sys; sys.path = [p for p in sys.path if p]; from rft_agent_sdk.cli import main; main()"
    done = subprocess.run(  # without the folder on the path, as the installed script has it
        [sys.executable, "-c", script, "play", "--environment", "counting:Counting", "--task", "x"],
        input='three\n{"n": 3\n3\n',
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "got {'n': 'three'}" in done.stdout
    assert "no JSON object" in done.stdout
    assert "got {'n': 3}" in done.stdout
    assert done.stdout.endswith("reward +1.000\n")


def test_local_sessions_are_told_apart_by_the_id_that_was_given():
    from bedrock_agentcore import BedrockAgentCoreApp

    app = BedrockAgentCoreApp()

    @app.entrypoint
    def echo(payload, context):
        return {"session": context.session_id}

    given = "x" * 36
    with serving(app) as url:
        same = [
            json.loads(rft("invoke", "--url", url, "--session-id", given).stdout) for _ in range(2)
        ]
        fresh = [json.loads(rft("invoke", "--url", url).stdout)["session"] for _ in range(2)]
    assert same == [{"session": given}] * 2
    assert fresh[0] != fresh[1]
    assert all(33 <= len(session) <= 256 for session in fresh)


def test_invoke_shows_what_a_failing_agent_answered():
    from bedrock_agentcore import BedrockAgentCoreApp

    app = BedrockAgentCoreApp()

    @app.entrypoint
    def broken(payload):
        raise RuntimeError("boom")

    with serving(app) as url:
        done = rft("invoke", "--url", url)
        assert requests.get(url + "/ping", timeout=5).status_code == 200
    assert done.returncode == 1
    assert "boom" in done.stderr
    assert "Traceback" not in done.stderr
