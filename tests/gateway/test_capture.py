"""Token capture end to end: real clients on one side, what may be trained on the other."""

import asyncio
import json
import threading
from contextlib import ExitStack
from typing import Any

import anthropic
import openai
import pytest
import requests

from environments.wordle import environment
from rft_agent_sdk import Outcome, Rollout, SamplingParams, ToolSpec, UsageError, play
from rft_agent_sdk.context import rollout_context
from rft_agent_sdk.gateway import Gateway, GatewayServer, Reply
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.samplers.scripted_tokens import ScriptedSampler
from rft_agent_sdk.gateway.samplers.token import Sampled, Sampler
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.testing import call, scripted
from rft_agent_sdk.types import Message

RENDERER = load_renderer()
GUESS: Any = {
    "type": "function",
    "function": {
        "name": "guess_word",
        "description": "Submit a guess.",
        "parameters": {
            "type": "object",
            "properties": {"guess": {"type": "string"}},
            "required": ["guess"],
        },
    },
}
FUNCTION: Any = GUESS["function"]
SPECS = (ToolSpec(FUNCTION["name"], FUNCTION["description"], FUNCTION["parameters"]),)


class Recording(Sampler):
    """Passes on another sampler's turns and keeps what was asked and answered."""

    def __init__(self, function):
        self.inner = ScriptedSampler(function, RENDERER)
        self.turns: list[tuple[list[int], Sampled]] = []
        self.seeds: list[int | None] = []
        self.version_now = 0
        self.gate: asyncio.Event | None = None

    @property
    def version(self):
        return self.version_now

    async def sample(self, request):
        if self.gate is not None:
            await self.gate.wait()
        found = await self.inner.sample(request)
        # A logprob of its own for each token, so that a mix-up would show.
        logprobs: list[float | None] = [
            -0.001 * (1 + len(self.turns) * 100 + i) for i in range(len(found.ids))
        ]
        sampled = Sampled(found.ids, logprobs, found.finish_reason, self.version_now)
        self.seeds.append(request.seed)
        self.turns.append((list(request.prompt), sampled))
        return sampled

    async def aclose(self):
        await self.inner.aclose()


def gateway_of(function, **options):
    sampler = Recording(function)
    return Gateway(renderer=RENDERER, sampler=sampler, **options), sampler


CLIENTS = ExitStack()


@pytest.fixture(autouse=True)
def close_clients():
    yield
    CLIENTS.close()


def client(server, session, **options) -> Any:
    made = openai.OpenAI(base_url=f"{server.url}/v1", api_key=session.secret, **options)
    return CLIENTS.enter_context(made)


def ask(api, messages, **options):
    return api.chat.completions.create(model="m", messages=messages, **options)


def check_contract(trajectory, sampler):
    """What is trained is exactly what was sampled, once, with its own logprobs."""
    trained = []
    for sample in trajectory.samples:
        prompts = {tuple(prompt) for prompt, _ in sampler.turns}
        for span in sample.spans:
            assert tuple(sample.token_ids[: span.start]) in prompts
            ids = list(sample.token_ids[span.start : span.end])
            mask = sample.loss_mask[span.start : span.end]
            if all(mask):
                trained.append((ids, list(sample.logprobs[span.start : span.end])))
            else:
                assert not any(mask)
        inside = sum(span.end - span.start for span in sample.spans)
        assert sum(sample.loss_mask) <= inside
    told = [(sampled.ids, sampled.logprobs) for _, sampled in sampler.turns]
    for item in trained:
        assert item in told
        assert trained.count(item) == 1
    if trajectory.samples:
        assert sum(sample.weight for sample in trajectory.samples) == pytest.approx(1)
    return trained


def test_a_wordle_rollout_by_strands_is_one_linear_sample_though_reasoning_is_dropped():
    """Strands sends no reasoning back; the policy thinks aloud before each of its six guesses."""
    guesses = ["slate", "crony", "blimp", "dwarf", "ghost", "wound"]

    def thinks(messages, tools):
        turn = sum(message.role == "assistant" for message in messages)
        calls = call("guess_word", json.dumps({"guess": guesses[turn]})).tool_calls
        return Message("assistant", "I try.", f"thought {turn}", calls)

    gateway, sampler = gateway_of(thinks)
    task = json.dumps({"prompt": "Play.", "answer": "wound"})
    with GatewayServer(gateway) as server:
        session = gateway.open(task=task)
        rollout = Rollout(parse_request({"prompt": task, "_config": session.config(server.url)}))
        with rollout_context(rollout):
            reward = play(environment, rollout)
        trajectory = session.seal(Outcome.COMPLETED, [reward.total])
    assert len(sampler.turns) == trajectory.turns == 6
    assert len(trajectory.samples) == 1
    assert trajectory.trained_tokens == sum(len(sampled.ids) for _, sampled in sampler.turns)
    assert len(check_contract(trajectory, sampler)) == 6
    assert trajectory.counters["reasoning_restored"] == trajectory.counters["healed"] == 5
    assert trajectory.task == task
    assert trajectory.reward == reward.total


@pytest.mark.parametrize("stream", [False, True])
def test_turn_two_extends_the_tokens_of_turn_one(stream):
    function = scripted(
        Message(
            "assistant", "I try.", "think hard", call("guess_word", '{"guess":"CRANE"}').tool_calls
        ),
        "Done.",
    )
    gateway, sampler = gateway_of(function)
    start = [
        {"role": "system", "content": "SYS"},
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
    ]
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api = client(server, session)
        reply = ask(api, start, tools=[GUESS]).choices[0]
        assert reply.finish_reason == "tool_calls"
        echoed: Any = {
            "role": "assistant",
            "content": [{"type": "text", "text": reply.message.content}],
            "tool_calls": [
                {
                    "id": reply.message.tool_calls[0].id,
                    "type": "function",
                    "function": {"name": "guess_word", "arguments": '{"guess": "CRANE"}'},
                }
            ],
        }
        result = {
            "role": "tool",
            "tool_call_id": echoed["tool_calls"][0]["id"],
            "content": "Guess 1/6: CRANE",
        }
        second = ask(api, [*start, echoed, result], tools=[GUESS], stream=stream)
        if stream:
            text = "".join(
                chunk.choices[0].delta.content or "" for chunk in second if chunk.choices
            )
        else:
            text = second.choices[0].message.content
        assert text == "Done."
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    (prompt, sampled), (after, _) = sampler.turns
    assert after[: len(prompt) + len(sampled.ids)] == [*prompt, *sampled.ids]
    assert len(trajectory.samples) == 1
    check_contract(trajectory, sampler)
    assert prompt == RENDERER.render([Message("system", "SYS"), Message("user", "go")], SPECS)


def test_an_identical_request_gets_the_stored_answer_and_samples_nothing():
    gateway, sampler = gateway_of(scripted("A", "B"))
    messages = [{"role": "user", "content": "go"}]
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api = client(server, session)
        first = ask(api, messages).choices[0].message.content
        again = ask(api, messages).choices[0].message.content
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    assert (first, again) == ("A", "A")
    assert len(sampler.turns) == 1
    assert (trajectory.turns, trajectory.counters["replayed"]) == (1, 1)


def test_a_resend_while_the_first_is_on_its_way_joins_it():
    gateway, sampler = gateway_of(scripted("A"))
    messages = [{"role": "user", "content": "go"}]
    with GatewayServer(gateway) as server:
        session = gateway.open()
        sampler.gate = asyncio.Event()
        impatient = client(server, session, timeout=0.3, max_retries=0)
        with pytest.raises(openai.APITimeoutError):
            ask(impatient, messages)
        found = []
        patient = client(server, session, max_retries=0)
        thread = threading.Thread(
            target=lambda: found.append(ask(patient, messages).choices[0].message.content)
        )
        thread.start()
        capture = gateway.find_session(session.secret).capture
        while capture.counts["joined"] == 0:
            thread.join(0.01)
        server_loop(server).call_soon_threadsafe(sampler.gate.set)
        thread.join(10)
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    assert found == ["A"]
    assert len(sampler.turns) == 1
    assert (trajectory.turns, trajectory.counters["joined"]) == (1, 1)


def server_loop(server):
    """The event loop of a server's thread."""
    return server._thread.server.servers[0].get_loop()


def test_a_nonce_asks_for_another_answer_on_purpose_and_both_train():
    replies = iter(["A", "B"])
    gateway, sampler = gateway_of(lambda messages, tools: Message("assistant", next(replies)))
    messages = [{"role": "user", "content": "go"}]
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api = client(server, session)
        texts = {
            ask(api, messages, extra_headers={"x-rft-nonce": nonce}).choices[0].message.content
            for nonce in ("1", "2")
        }
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    assert texts == {"A", "B"}
    assert len(trajectory.samples) == 2
    assert len(check_contract(trajectory, sampler)) == 2


def test_a_seeded_session_seeds_each_turn_its_own_way_and_the_same_way_again(tmp_path):
    def seeds_of(seed, *, stops_between=False):
        folder = tmp_path / f"{seed}-{stops_between}"
        gateway, sampler = gateway_of(scripted("one", "two"), log_dir=folder)
        history = [{"role": "user", "content": "go"}]
        with GatewayServer(gateway) as server:
            session = gateway.open(seed=seed)
            api = client(server, session)
            reply = ask(api, history).choices[0].message.content
            for nonce in ("a", "b"):
                ask(api, history, extra_headers={"x-rft-nonce": nonce})
        history += [{"role": "assistant", "content": reply}, {"role": "user", "content": "on"}]
        before = sampler.seeds
        if stops_between:
            gateway, sampler = gateway_of(scripted("one", "two"), log_dir=folder)
        with GatewayServer(gateway) as server:
            ask(client(server, session), history)
        return before + sampler.seeds if stops_between else before

    assert seeds_of(None) == [None] * 4
    seeds = seeds_of(7)
    assert len({*seeds}) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seeds_of(7, stops_between=True) == seeds
    assert not {*seeds_of(8)} & {*seeds}


def test_an_edited_history_branches_and_every_token_still_trains_once():
    gateway, sampler = gateway_of(scripted("one", "two", "three"))
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api = client(server, session)
        history = [{"role": "user", "content": "go"}]
        ask(api, history)
        edited = [
            *history,
            {"role": "assistant", "content": "never said"},
            {"role": "user", "content": "on"},
        ]
        ask(api, edited)
        trajectory = session.seal(Outcome.COMPLETED, [0.5])
    assert len(trajectory.samples) == 2
    assert len(check_contract(trajectory, sampler)) == 2
    assert trajectory.counters["history_edited"] == 1


def test_tree_mode_renders_every_prompt_anew():
    function = scripted(Message("assistant", "one", "hm"), "two")
    gateway, sampler = gateway_of(function)
    with GatewayServer(gateway) as server:
        session = gateway.open(history_mode="tree")
        api = client(server, session)
        history = [{"role": "user", "content": "go"}]
        ask(api, history)
        ask(
            api,
            [*history, {"role": "assistant", "content": "one"}, {"role": "user", "content": "on"}],
        )
        trajectory = session.seal(Outcome.COMPLETED, [0.5])
    assert trajectory.counters["rendered"] == 2
    assert len(check_contract(trajectory, sampler)) == 2


def test_the_sessions_sampling_parameters_win_and_what_was_ignored_is_counted():
    gateway, _ = gateway_of(scripted("A"))
    with GatewayServer(gateway) as server:
        session = gateway.open(sampling=SamplingParams(temperature=1.0, max_tokens=50))
        ask(client(server, session), [{"role": "user", "content": "go"}], temperature=0.1, seed=3)
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    assert trajectory.counters["sampling_ignored"] == 1


def test_a_turn_cut_off_by_max_tokens_says_so_and_the_next_one_goes_on():
    gateway, sampler = gateway_of(scripted("one two three four five six seven", "done"))
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api = client(server, session)
        history = [{"role": "user", "content": "go"}]
        first = ask(api, history, max_tokens=4).choices[0]
        assert first.finish_reason == "length"
        echoed = [*history, {"role": "assistant", "content": first.message.content}]
        ask(api, [*echoed, {"role": "user", "content": "go on"}])
        trajectory = session.seal(Outcome.TRUNCATED, [0.0])
    assert trajectory.counters["truncated"] == 1
    check_contract(trajectory, sampler)


@pytest.mark.parametrize("limits", [{"max_turns": 1}, {"budget": 3}, {"max_context_tokens": 60}])
def test_over_a_limit_is_a_context_length_error_and_the_outcome_is_truncated(limits):
    gateway, sampler = gateway_of(scripted("word " * 30, "word " * 30))
    with GatewayServer(gateway) as server:
        session = gateway.open(**limits)
        api = client(server, session)
        history = [{"role": "user", "content": "go"}]
        reply = ask(api, history).choices[0].message.content
        history += [{"role": "assistant", "content": reply}, {"role": "user", "content": "x " * 40}]
        with pytest.raises(openai.BadRequestError) as caught:
            ask(api, history)
        assert caught.value.code == "context_length_exceeded"
        trajectory = session.seal(Outcome.COMPLETED, [0.0])
    assert trajectory.outcome is Outcome.TRUNCATED
    assert len(sampler.turns) == 1


def test_a_sealed_session_refuses_to_sample_and_tells_the_client_not_to_retry():
    gateway, sampler = gateway_of(scripted("A"))
    with GatewayServer(gateway) as server:
        session = gateway.open()
        trajectory = session.seal()
        assert trajectory.outcome is Outcome.NO_SAMPLING
        response = requests.post(
            f"{server.url}/v1/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "go"}]},
            headers={"Authorization": f"Bearer {session.secret}"},
            timeout=5,
        )
    assert response.status_code == 409
    assert response.headers["x-should-retry"] == "false"
    assert sampler.turns == []


def test_a_reply_that_comes_after_the_seal_is_not_recorded():
    gateway, sampler = gateway_of(scripted("A"))
    with GatewayServer(gateway) as server:
        session = gateway.open()
        sampler.gate = asyncio.Event()
        errors = []

        def late():
            try:
                ask(client(server, session, max_retries=0), [{"role": "user", "content": "go"}])
            except openai.APIStatusError as error:
                errors.append(error.status_code)

        thread = threading.Thread(target=late)
        thread.start()
        capture = gateway.find_session(session.secret).capture
        while not capture._flights:
            thread.join(0.01)
        trajectory = session.seal(Outcome.TIMEOUT, [])
        server_loop(server).call_soon_threadsafe(sampler.gate.set)
        thread.join(10)
    assert errors == [409]
    assert trajectory.samples == ()
    assert session.turns == ()


def test_per_turn_rewards_are_checked_against_the_captured_turns():
    gateway, _ = gateway_of(scripted("one", "two"))
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api = client(server, session)
        history = [{"role": "user", "content": "go"}]
        reply = ask(api, history).choices[0].message.content
        ask(
            api,
            [*history, {"role": "assistant", "content": reply}, {"role": "user", "content": "on"}],
        )
        headers = {"Authorization": f"Bearer {session.secret}"}
        requests.post(f"{server.url}/complete-rollout", json={}, headers=headers, timeout=5)
        bad = requests.post(
            f"{server.url}/update-reward", json={"Rewards": [1, 2, 3]}, headers=headers, timeout=5
        )
        assert bad.status_code == 400
        with pytest.raises(UsageError, match="3 rewards for 2 turns"):
            session.seal(Outcome.COMPLETED, [1, 2, 3])
        good = requests.post(
            f"{server.url}/update-reward", json={"Rewards": [0.25, 0.5]}, headers=headers, timeout=5
        )
        assert good.status_code == 200
        trajectory = session.seal()
    assert trajectory.per_turn == (0.25, 0.5)
    assert [span.reward for span in trajectory.samples[0].spans] == [0.25, 0.5]


def test_anthropic_and_count_tokens_go_through_the_same_capture():
    gateway, sampler = gateway_of(scripted(Message("assistant", "Hello.", "hm"), "Bye."))
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api: Any = anthropic.Anthropic(base_url=server.url, api_key=session.secret)
        CLIENTS.callback(api.close)
        messages = [{"role": "user", "content": "go"}]
        counted = api.messages.count_tokens(model="m", messages=messages)
        first = api.messages.create(model="m", max_tokens=100, messages=messages)
        content = [block.model_dump() for block in first.content]
        history = [
            *messages,
            {"role": "assistant", "content": content},
            {"role": "user", "content": "on"},
        ]
        with api.messages.stream(model="m", max_tokens=100, messages=history) as stream:
            last = stream.get_final_message()
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    assert counted.input_tokens == len(sampler.turns[0][0]) == first.usage.input_tokens
    assert [block.type for block in first.content] == ["thinking", "text"]
    assert last.content[-1].text == "Bye."
    assert last.usage.output_tokens == len(sampler.turns[1][1].ids)
    assert len(trajectory.samples) == 1
    check_contract(trajectory, sampler)


def test_what_free_sampling_cannot_keep_is_refused_before_anything_is_sampled():
    gateway, sampler = gateway_of(scripted("A"))
    with GatewayServer(gateway) as server:
        api = client(server, gateway.open())
        cases: dict[str, Any] = {
            "tool_choice": {"tools": [GUESS], "tool_choice": "required"},
            "parallel_tool_calls": {"tools": [GUESS], "parallel_tool_calls": False},
            "response_format": {"response_format": {"type": "json_object"}},
            "stop": {"stop": ["x"]},
        }
        for field, options in cases.items():
            with pytest.raises(openai.BadRequestError, match=field):
                ask(api, [{"role": "user", "content": "go"}], **options)
    assert sampler.turns == []


def test_a_gateway_without_a_renderer_says_what_a_session_needs():
    with pytest.raises(UsageError, match="policy="):
        Gateway().open()
    with pytest.raises(UsageError, match="both"):
        Gateway(renderer=RENDERER)


def test_a_restarted_gateway_goes_on_where_the_killed_one_stopped(tmp_path):
    function = scripted("one", "two", "three")
    gateway, first_sampler = gateway_of(function, log_dir=tmp_path)
    history = [{"role": "user", "content": "go"}]
    with GatewayServer(gateway) as server:
        session = gateway.open(task="t", sampling=SamplingParams(temperature=1.0), max_turns=3)
        other = gateway.open()
        reply = ask(client(server, session), history).choices[0].message.content
    history += [{"role": "assistant", "content": reply}, {"role": "user", "content": "on"}]

    again, sampler = gateway_of(function, log_dir=tmp_path)
    with GatewayServer(again) as server:
        api = client(server, session)
        resent = ask(api, history[:1]).choices[0].message.content
        ask(api, history)
        trajectory = again.resume(session.secret).seal(Outcome.COMPLETED, [1.0])
        assert again.resume(other.secret).turns == ()
    assert resent == "one"
    assert len(sampler.turns) == 1
    sampler.turns = first_sampler.turns + sampler.turns
    assert (trajectory.turns, trajectory.task, len(trajectory.samples)) == (2, "t", 1)
    check_contract(trajectory, sampler)

    third, _ = gateway_of(function, log_dir=tmp_path)
    sealed = third.resume(session.secret)
    assert sealed.seal().reward == 1.0
    sealed.drop()
    fourth, _ = gateway_of(function, log_dir=tmp_path)
    with pytest.raises(UsageError, match="no session"):
        fourth.resume(session.secret)


def test_a_log_cut_off_in_mid_line_loses_only_what_was_never_answered(tmp_path):
    gateway, _ = gateway_of(scripted("one"), log_dir=tmp_path)
    with GatewayServer(gateway) as server:
        session = gateway.open()
        ask(client(server, session), [{"role": "user", "content": "go"}])
    (log,) = tmp_path.glob("*.jsonl")
    assert session.secret not in log.read_text()
    with log.open("ab") as file:
        file.write(b'{"turn": {"turn": 1, "par')
    again, _ = gateway_of(scripted("one"), log_dir=tmp_path)
    assert len(again.resume(session.secret).turns) == 1
    assert log.read_bytes().endswith(b"}\n")


def test_a_turn_keeps_the_policy_version_that_sampled_it():
    gateway, sampler = gateway_of(scripted("one", "two"))
    with GatewayServer(gateway) as server:
        session = gateway.open()
        api = client(server, session)
        history = [{"role": "user", "content": "go"}]
        reply = ask(api, history).choices[0].message.content
        sampler.version_now = 1
        ask(
            api,
            [*history, {"role": "assistant", "content": reply}, {"role": "user", "content": "on"}],
        )
        trajectory = session.seal(Outcome.COMPLETED, [1.0])
    assert trajectory.versions == (0, 1)


def test_a_function_that_says_length_is_recorded_as_truncated():
    gateway, _ = gateway_of(
        lambda messages, tools: Reply(Message("assistant", "hmm hmm"), "length")
    )
    with GatewayServer(gateway) as server:
        session = gateway.open()
        reply = ask(client(server, session), [{"role": "user", "content": "go"}]).choices[0]
        trajectory = session.seal(Outcome.TRUNCATED, [0.0])
    assert reply.finish_reason == "length"
    assert trajectory.samples[0].is_truncated


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("stream", ["true", "false"])
@pytest.mark.parametrize(
    "field",
    [
        f'"metadata": {nested(990)}',
        f'"tools": [{{"type": "function", "function": {{"name": "f", "parameters": {nested(990)}}}}}]',
    ],
    ids=["metadata", "tools"],
)
def test_what_is_nested_too_deeply_is_the_clients_fault(field, stream):
    gateway, sampler = gateway_of(scripted("one"))
    message = '{"role": "user", "content": "go"}'
    body = f'{{"model": "m", "stream": {stream}, "messages": [{message}], {field}}}'
    with GatewayServer(gateway) as server:
        session = gateway.open()
        answer = requests.post(
            f"{server.url}/v1/chat/completions",
            data=body,
            headers={"Authorization": f"Bearer {session.secret}"},
            timeout=30,
        )
    assert "nested too deeply" in answer.text
    assert "invalid_request_error" in answer.text
    assert sampler.turns == []


def test_nesting_within_the_limit_is_served():
    gateway, sampler = gateway_of(scripted("one"))
    with GatewayServer(gateway) as server:
        api = client(server, gateway.open())
        ask(
            api,
            [{"role": "user", "content": "go"}],
            extra_body={"metadata": json.loads(nested(150))},
        )
    assert len(sampler.turns) == 1


class Silent(Sampler):
    version = 0

    async def sample(self, request):
        return Sampled([], [], "stop", 0)


def test_a_turn_without_a_token_is_the_samplers_fault_and_no_turn():
    gateway = Gateway(renderer=RENDERER, sampler=Silent())
    with GatewayServer(gateway) as server:
        session = gateway.open()
        url = f"{server.url}/v1"
        with (
            openai.OpenAI(base_url=url, api_key=session.secret, max_retries=0) as api,
            pytest.raises(openai.APIStatusError, match="at least one sampled token"),
        ):
            ask(api, [{"role": "user", "content": "go"}])
    assert session.turns == ()
