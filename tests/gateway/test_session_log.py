"""The log of a session where the disk, the folder or the log itself is not as it should be."""

import json
import resource
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from rft_agent_sdk import Outcome, UsageError
from rft_agent_sdk.gateway import Gateway, GatewayServer
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.samplers.scripted_tokens import ScriptedSampler
from rft_agent_sdk.gateway.session_log import SessionLog, read_logs
from rft_agent_sdk.testing import scripted
from tests.gateway.players import gateway_process

RENDERER = load_renderer()
START: Any = [{"role": "user", "content": "go"}]


def gateway_of(folder: Path) -> Gateway:
    sampler = ScriptedSampler(scripted("one", "two"), RENDERER)
    return Gateway(renderer=RENDERER, sampler=sampler, log_dir=folder)


@contextmanager
def room_for(path: Path, more: int):
    """Let files grow no further than `more` bytes past this one: a disk that is about to be full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_that_does_not_fit_on_the_disk_leaves_nothing_behind(tmp_path):
    log = SessionLog.create(tmp_path, "session", {"secret": "00"})
    before = log.path.read_bytes()
    with room_for(log.path, 100), pytest.raises(OSError, match="too large"):
        log.append({"turn": {"text": "x" * 1000}})
    assert log.path.read_bytes() == before
    log.append({"turn": {"text": "y"}})
    (logged,) = read_logs(tmp_path)
    assert logged.turns == ({"text": "y"},)


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_cannot_be_stored_is_refused_and_never_trains(tmp_path, stream):
    gateway = gateway_of(tmp_path)
    with GatewayServer(gateway) as server:
        session = gateway.open()
        (path,) = tmp_path.glob("*.jsonl")
        url = f"{server.url}/v1"
        with openai.OpenAI(base_url=url, api_key=session.secret, max_retries=0) as api:
            with room_for(path, 40), pytest.raises(openai.APIError, match="could not be stored"):
                list(api.chat.completions.create(model="m", messages=START, stream=stream))
            assert session.turns == ()
            reply = api.chat.completions.create(model="m", messages=START).choices[0].message
            more: Any = [{"role": "assistant", "content": reply.content}, *START]
            api.chat.completions.create(model="m", messages=START + more)
    trajectory = gateway_of(tmp_path).resume(session.secret).seal(Outcome.COMPLETED, [1.0])
    assert trajectory.turns == 2
    assert len(session.turns) == 2


def test_an_end_that_could_not_be_stored_is_stored_by_the_next_seal(tmp_path):
    gateway = gateway_of(tmp_path)
    session, dropped = gateway.open(), gateway.open()
    path = max(tmp_path.glob("*.jsonl"), key=lambda path: path.stat().st_size)
    with room_for(path, 40):
        with pytest.raises(OSError, match="too large"):
            session.seal(Outcome.AGENT_ERROR, [1.0])
        dropped.drop()
    sealed = session.seal()
    assert (sealed.outcome, sealed.reward) == (Outcome.AGENT_ERROR, 1.0)
    again = gateway_of(tmp_path)
    assert again.stats()["sessions"] == {"open": 0, "sealed": 1, "dropped": 0}
    assert again.resume(session.secret).seal() == sealed


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_served(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="folder for session logs"):
        gateway_of(tmp_path / "file")


def test_gateways_of_two_processes_do_not_share_a_folder(tmp_path):
    with (
        gateway_process("endless", "--log-dir", str(tmp_path)),
        pytest.raises(UsageError, match="another gateway"),
    ):
        gateway_of(tmp_path)
    gateway_of(tmp_path)


OPENED = {
    "secret": "00",
    "renderer": RENDERER.name,
    "terms": {"sampling": None, "limits": {}, "history_mode": "linear", "task": None},
}


@pytest.mark.parametrize(
    "records",
    [
        [3],
        [{"turn": {}}],
        [{"opened": None}],
        [{"opened": {}}],
        [{"opened": {**OPENED, "secret": "zz"}}],
        [{"opened": {**OPENED, "terms": {"sampling": 3}}}],
        [{"opened": OPENED}, 3],
        [{"opened": OPENED}, {"turn": {}}],
        [{"opened": OPENED}, {"event": {}}],
        [{"opened": OPENED}, {"event": {"outcome": "unheard of"}}],
    ],
    ids=json.dumps,
)
def test_a_damaged_log_is_named(tmp_path, records):
    path = tmp_path / "damaged-log.session.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(UsageError, match="damaged-log"):
        gateway_of(tmp_path)


@pytest.mark.parametrize("change", ["template", "tokenizer"])
def test_a_session_is_not_taken_up_by_another_renderer(tmp_path, change):
    data = resources.files("rft_agent_sdk.gateway.data")
    spec = json.loads(data.joinpath("tokenizer.json").read_text("utf-8"))
    for piece, number in spec["model"]["vocab"].items():
        if number < 256:  # the single bytes, the other way around
            spec["model"]["vocab"][piece] = 255 - number
    template = data.joinpath("chat_template.jinja").read_text("utf-8")
    if change == "tokenizer":
        changed = Tokenizer.from_str(json.dumps(spec))
        other = load_renderer(tokenizer=changed, template=template)
        assert other.name == RENDERER.name
    else:
        other = load_renderer(template=template + "{# another #}")
    gateway_of(tmp_path).open()
    sampler = ScriptedSampler(scripted("one"), other)
    with pytest.raises(UsageError, match=f"another {change}|with the renderer"):
        Gateway(renderer=other, sampler=sampler, log_dir=tmp_path)
    gateway_of(tmp_path)
