"""Rollouts with the real gateway, and agents over HTTP and over AgentCore's wire."""

import asyncio
import math
import threading

import pytest
import requests

from rft_agent_sdk.errors import RolloutsFailed, UsageError
from rft_agent_sdk.gateway import Gateway, GatewayServer, RemoteGateway
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.training.agents import AgentCoreAgent, HttpAgent
from rft_agent_sdk.training.rollouts import Rollouts, RolloutSettings
from rft_agent_sdk.training.sessions import SessionHost, read_response
from rft_agent_sdk.types import Outcome, SamplingParams
from tests.servers import Answer, ScriptedServer, serving
from tests.training.two_words import RENDERER, TableSampler, entrypoint, stage

ARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/agent-abc123"
TASK = {"prompt": "Say a word.", "answer": "yes"}


@pytest.fixture(scope="module")
def two_words():
    with stage() as found:
        yield found


def run(work):
    return asyncio.run(work)


def sample(config, text="go"):
    """Ask the gateway for one turn, as any OpenAI client would."""
    body = {"model": config["model_id"], "messages": [{"role": "user", "content": text}]}
    return requests.post(
        f"{config['base_url']}/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {config['api_key']}"},
        timeout=10,
    )


def answering(body, *, samples=True, status=200):
    """A foreign agent: samples once, then answers with a body."""

    def script(seen, count):
        if samples:
            sample(seen.json["_config"])
        return Answer(status, body(seen) if callable(body) else body)

    return ScriptedServer(script)


def play_one(stage, agent, sampling=None, **settings):
    async def work():
        terms = {"retries": 0, "grace_s": 0.5, **settings}
        async with stage.rollouts(agent, **terms) as rollouts:
            return await rollouts.run_rollout(TASK, sampling)

    return run(work())


def test_the_real_entrypoint_plays_a_batch_in_groups(two_words):
    payloads = [{"prompt": f"Say word {n}.", "answer": "yes"} for n in range(2)]

    async def work():
        async with two_words.rollouts() as rollouts:
            return await rollouts.run_batch(payloads, 4)

    groups = run(work())
    assert [group.payload for group in groups] == payloads
    played = [one for group in groups for one in group.rollouts]
    assert {one.trajectory.outcome for one in played} == {Outcome.COMPLETED}
    assert [sorted(one.reward for one in group.trained) for group in groups] == [[0, 0, 1, 1]] * 2
    assert all(one.trajectory.components == {"solved": one.reward} for one in played)
    assert all(one.trajectory.trained_tokens > 10 for one in played)
    assert all(one.to_json()["versions"] == [0] for one in played)
    assert not any(group.is_flat for group in groups)
    assert len({one.session_id for one in played}) == 8
    assert two_words.gateway.stats()["sessions"]["open"] == 0


def test_a_gateway_in_another_process_serves_the_loop_alike():
    key = "an-admin-key-of-some-length"
    gateway = Gateway(renderer=RENDERER, sampler=TableSampler(0.0, 0), admin_key=key)

    def later(seen, count):
        threading.Timer(
            0.1, lambda: (sample(seen.json["_config"]), report(seen.json["_config"]))
        ).start()
        return Answer(body={"status": "accepted"})

    async def work(host: SessionHost, url, agent, server_url):
        settings = RolloutSettings(server_url, deadline_s=20.0)
        async with Rollouts(host, HttpAgent(url), settings) as rollouts:
            (group,) = await rollouts.run_batch([TASK], 4)
        async with Rollouts(host, HttpAgent(agent), settings) as rollouts:
            return group, await rollouts.run_rollout(TASK)

    with (
        GatewayServer(gateway) as server,
        serving(asgi_app(entrypoint())) as url,
        ScriptedServer(later) as agent,
        RemoteGateway(server.url, key) as remote,
    ):
        group, reported = run(work(remote, url, agent.url, server.url))
    assert sorted(one.reward for one in group.trained) == [0, 0, 1, 1]
    assert {(one.sampling_requests, one.reports) for one in group.rollouts} == {(1, 2)}
    assert all(one.trajectory.trained_tokens > 10 for one in group.rollouts)
    assert (reported.reward, reported.trajectory.outcome) == (0.75, Outcome.TRUNCATED)
    assert gateway.stats()["sessions"] == {"open": 0, "sealed": 0, "dropped": 5}


def test_the_payload_goes_out_as_it_is_with_a_config_beside_it(two_words):
    with answering({"reward": 0.25}) as server:
        payload = {"prompt": "p", "deep": {"x": [1, None, "\u2028"]}}

        async def work():
            agent = HttpAgent(server.url)
            async with two_words.rollouts(agent, model_id="m1", deadline_s=9.0) as rollouts:
                return await rollouts.run_rollout(payload)

        played = run(work())
    (seen,) = server.to("/invocations")
    sent = seen.json
    config = sent.pop("_config")
    assert sent == payload
    assert config.pop("api_key")
    assert config == {
        "base_url": f"{two_words.server.url}/v1",
        "model_id": "m1",
        "report": True,
        "deadline_s": 9.0,
    }
    assert seen.headers["x-amzn-bedrock-agentcore-runtime-session-id"] == played.session_id
    assert played.session_id.startswith(played.trajectory.rollout_id)
    assert 33 <= len(played.session_id) <= 256
    assert (played.reward, played.trajectory.outcome) == (0.25, Outcome.COMPLETED)
    assert played.trains


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"answer": 1}, Outcome.AGENT_ERROR),
        ({"reward": "1"}, Outcome.AGENT_ERROR),
        ({"reward": True}, Outcome.AGENT_ERROR),
        ({"reward": [0.5, 0.5, 0.5]}, Outcome.AGENT_ERROR),
        (b'{"reward": NaN}', Outcome.AGENT_ERROR),
        (b'{"reward": 1' + 400 * b"0" + b"}", Outcome.AGENT_ERROR),
        (b'{"reward": [1' + 400 * b"0" + b"]}", Outcome.AGENT_ERROR),
        ({"reward": 1e200}, Outcome.AGENT_ERROR),
        ({"reward": -1e200}, Outcome.AGENT_ERROR),
        ({"status": "processing", "s3_bucket": "b", "result_key": "k"}, Outcome.AGENT_ERROR),
        (b"[1]", Outcome.AGENT_ERROR),
        (b"no json", Outcome.AGENT_ERROR),
        ({"reward": 1.0, "_rft": {"outcome": "environment_error"}}, Outcome.ENVIRONMENT_ERROR),
        ({"status": "error", "error": "it broke"}, Outcome.AGENT_ERROR),
    ],
)
def test_what_gives_no_reward_of_the_policys_own_never_trains(two_words, body, outcome):
    with answering(body) as server:
        played = play_one(two_words, HttpAgent(server.url))
    assert played.trajectory.outcome is outcome
    assert not played.trains
    assert played.has_failed


def test_an_agent_that_never_sampled_is_no_sampling_whatever_it_says(two_words):
    body = {"reward": 1.0, "_rft": {"outcome": "completed"}}
    with answering(body, samples=False) as server:
        played = play_one(two_words, HttpAgent(server.url))
    assert played.trajectory.outcome is Outcome.NO_SAMPLING
    assert not played.trains


@pytest.mark.parametrize(
    ("status", "outcome"), [(500, Outcome.AGENT_ERROR), (502, Outcome.INFRASTRUCTURE_ERROR)]
)
def test_a_failed_call_is_an_outcome_not_an_exception(two_words, status, outcome):
    with answering({"error": "x"}, status=status) as server:
        played = play_one(two_words, HttpAgent(server.url))
    assert played.trajectory.outcome is outcome
    assert str(status) in played.detail
    nowhere = play_one(two_words, HttpAgent("http://127.0.0.1:9"))
    assert nowhere.trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR


def test_a_busy_agent_is_asked_again_in_the_same_session(two_words):
    def script(seen, count):
        if count < 2:
            return Answer(429)
        sample(seen.json["_config"])
        return Answer(body={"reward": 1})

    with ScriptedServer(script) as server:
        played = play_one(two_words, HttpAgent(server.url, busy_pause_s=0.01))
    assert (played.reward, played.attempts) == (1.0, 1)
    ids = {seen.headers["x-amzn-bedrock-agentcore-runtime-session-id"] for seen in server.seen}
    assert (len(server.seen), len(ids)) == (3, 1)


def test_a_failed_rollout_is_played_again_in_a_fresh_session(two_words):
    def script(seen, count):
        if count == 0:
            return Answer(500)
        sample(seen.json["_config"])
        return Answer(body={"reward": 1})

    with ScriptedServer(script) as server:
        played = play_one(two_words, HttpAgent(server.url), retries=1)
    keys = {seen.json["_config"]["api_key"] for seen in server.seen}
    assert (played.reward, played.attempts, len(keys)) == (1.0, 2, 2)


def test_a_hanging_agent_is_a_timeout_without_a_reward(two_words):
    with ScriptedServer(lambda seen, count: Answer(body={"reward": 1}, delay_s=1.0)) as server:
        played = play_one(two_words, HttpAgent(server.url), deadline_s=0.2, grace_s=0.1, retries=3)
    assert (played.trajectory.outcome, played.attempts) == (Outcome.TIMEOUT, 1)
    assert math.isnan(played.reward)
    assert not played.trains


def report(config, rewards=(0.75,)):
    """Report an end as an agent in the background does."""
    root = config["base_url"].removesuffix("/v1")
    headers = {"Authorization": f"Bearer {config['api_key']}"}
    for path, body in (("complete-rollout", {}), ("update-reward", {"Rewards": list(rewards)})):
        told = {**body, "Outcome": "truncated"}
        requests.post(f"{root}/{path}", json=told, headers=headers, timeout=10).raise_for_status()


def test_an_agent_in_the_background_is_waited_for_until_it_reports(two_words):
    threads = []

    def later(config):
        sample(config)
        report(config)

    def script(seen, count):
        timer = threading.Timer(0.2, later, (seen.json["_config"],))
        timer.start()
        threads.append(timer)
        return Answer(body={"status": "accepted"})

    with ScriptedServer(script) as server:
        played = play_one(two_words, HttpAgent(server.url), deadline_s=10)
    assert (played.reward, played.trajectory.outcome) == (0.75, Outcome.TRUNCATED)
    assert played.trains
    threads[0].join()
    with ScriptedServer(lambda seen, count: Answer(body={"status": "accepted"})) as server:
        silent = play_one(two_words, HttpAgent(server.url), deadline_s=0.2, grace_s=0.0)
    assert silent.trajectory.outcome is Outcome.TIMEOUT


def test_a_report_counts_where_the_response_was_lost(two_words):
    def script(seen, count):
        sample(seen.json["_config"])
        report(seen.json["_config"])
        return Answer(drop=True)

    with ScriptedServer(script) as server:
        played = play_one(two_words, HttpAgent(server.url))
    assert (played.reward, played.trajectory.outcome) == (0.75, Outcome.TRUNCATED)
    assert played.trains


def test_zero_is_only_made_up_where_it_is_asked_for(two_words):
    with answering({}) as server:
        played = play_one(two_words, HttpAgent(server.url), failed_rollout="zero")
    assert (played.reward, played.trains, played.has_failed) == (0.0, True, True)
    assert played.trajectory.outcome is Outcome.AGENT_ERROR


def test_too_many_failures_stop_the_run_and_few_do_not(two_words):
    def script(seen, count):
        sample(seen.json["_config"])
        return Answer(body={"reward": 1} if seen.json["good"] else {"error": "broken tool"})

    async def work(bad, server):
        agent = HttpAgent(server.url)
        async with two_words.rollouts(agent, retries=0, failure_rate_limit=0.25) as rollouts:
            return await rollouts.run_batch([{"good": n >= bad} for n in range(4)], 2)

    with ScriptedServer(script) as server:
        groups = run(work(1, server))
        assert [len(group.trained) for group in groups] == [0, 2, 2, 2]
        with pytest.raises(
            RolloutsFailed, match=r"4 of 8 rollouts failed \(4 agent_error\)"
        ) as told:
            run(work(2, server))
    assert "0.25 that may (failure_rate_limit). The last agent_error: broken tool" in str(
        told.value
    )
    assert [len(group.rollouts) for group in told.value.groups] == [2, 2, 2, 2]


def test_the_preflight_tells_apart_what_is_wrong(two_words):
    def probe(script):
        async def work():
            async with two_words.rollouts(HttpAgent(url), deadline_s=5.0) as rollouts:
                return await rollouts.preflight(TASK)

        with ScriptedServer(script) as server:
            url = server.url
            return run(work())

    with pytest.raises(
        UsageError, match=r"no request of the agent arrived.*VPC mode.*gateway_port"
    ):
        probe(lambda seen, count: Answer(body={"reward": 0.0}))

    def reports(seen, count):
        report(seen.json["_config"])
        return Answer(body={"reward": 0.0})

    with pytest.raises(UsageError, match="made no model call"):
        probe(reports)

    def misasks(seen, count):
        config = seen.json["_config"]
        headers = {"Authorization": f"Bearer {config['api_key']}"}
        url = f"{config['base_url']}/chat/completions"
        requests.post(url, json={"model": "m"}, headers=headers, timeout=10)
        return Answer(body={"reward": 0.0})

    with pytest.raises(UsageError, match="1 requests reached the gateway"):
        probe(misasks)
    with pytest.raises(UsageError, match="the agent itself could not be invoked"):
        probe(lambda seen, count: Answer(drop=True))

    def stranger(seen, count):
        sample({**seen.json["_config"], "api_key": "wrong"})
        return Answer(500)

    with pytest.raises(UsageError, match=r"were refused \(2 with 401\).*_config.api_key"):
        probe(stranger)

    def lost(seen, count):
        config = seen.json["_config"]
        sample({**config, "base_url": config["base_url"].removesuffix("/v1")})
        return Answer(body={"reward": 0.0})

    with pytest.raises(UsageError, match=r"were refused \(2 with 404\)"):
        probe(lost)
    for failing in (Answer(500, {"detail": "boom"}), Answer(body=b"<html>")):
        with pytest.raises(UsageError, match=r"the agent itself failed.*the agent's log") as caught:
            probe(lambda seen, count, failing=failing: failing)
        assert "VPC mode" not in str(caught.value)
    unreached = {"reward": None, "_rft": {"outcome": "infrastructure_error", "error": "no route"}}
    with pytest.raises(UsageError, match=r"no route.*no request of the agent arrived.*VPC mode"):
        probe(lambda seen, count: Answer(body=unreached))

    async def good():
        async with two_words.rollouts() as rollouts:
            return await rollouts.preflight(TASK)

    assert run(good()).trains


def test_the_probe_is_played_again_as_a_rollout_is(two_words):
    def script(seen, count):
        if count == 0:
            return Answer(500)
        sample(seen.json["_config"])
        return Answer(body={"reward": 1})

    async def work(retries):
        async with two_words.rollouts(HttpAgent(server.url), retries=retries) as rollouts:
            return await rollouts.preflight(TASK)

    with ScriptedServer(script) as server:
        assert run(work(1)).attempts == 2
    with ScriptedServer(script) as server, pytest.raises(UsageError, match="answered 500"):
        run(work(0))


def test_cancelled_rollouts_leave_no_open_session(two_words):
    async def work():
        async with two_words.rollouts(HttpAgent(server.url)) as rollouts:
            await asyncio.wait_for(rollouts.run_batch([TASK], 3), 0.3)

    with ScriptedServer(lambda seen, count: Answer(delay_s=1.0)) as server:
        with pytest.raises(TimeoutError):
            run(work())
        assert len(server.seen) == 3
    assert two_words.gateway.stats()["sessions"]["open"] == 0


def test_sampling_is_fixed_by_the_trainer(two_words):
    sampling = SamplingParams(temperature=0.5, max_tokens=100)
    play_one(two_words, None, sampling)
    assert two_words.pool._binding.samplers[0].temperatures[-1] == 0.5


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.mark.usefixtures("keys")
def test_a_runtime_on_agentcore_is_invoked_and_its_session_stopped(two_words):
    def script(seen, count):
        if "stopruntimesession" in seen.path:
            return Answer(body={"runtimeSessionId": "s" * 33, "statusCode": 200})
        if count == 0:
            kind = {"x-amzn-errortype": "ThrottlingException"}
            return Answer(429, {"message": "slow down"}, kind)
        sample(seen.json["_config"])
        return Answer(body={"reward": 0.5})

    with ScriptedServer(script) as server:
        agent = AgentCoreAgent(ARN, tps=100, endpoint_url=server.url, busy_pause_s=0.01)
        played = play_one(two_words, agent)
    assert (played.reward, played.attempts) == (0.5, 1)
    paths = [seen.path for seen in server.seen]
    assert [path.rpartition("/")[2] for path in paths] == [
        "invocations?qualifier=DEFAULT",
        "invocations?qualifier=DEFAULT",
        "stopruntimesession?qualifier=DEFAULT",
    ]
    header = "x-amzn-bedrock-agentcore-runtime-session-id"
    assert {seen.headers[header] for seen in server.seen} == {played.session_id}


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (424, "RuntimeClientError", Outcome.AGENT_ERROR),
        (500, "InternalServerException", Outcome.INFRASTRUCTURE_ERROR),
    ],
)
def test_agentcores_errors_tell_whose_doing_they_are(two_words, status, code, outcome):
    def script(seen, count):
        return Answer(status, {"message": "no"}, {"x-amzn-errortype": code})

    with ScriptedServer(script) as server:
        played = play_one(two_words, AgentCoreAgent(ARN, tps=100, endpoint_url=server.url))
    assert played.trajectory.outcome is outcome
    assert code in played.detail


@pytest.mark.usefixtures("keys")
def test_invocations_start_at_the_rate_and_in_the_number_that_are_allowed():
    starts, now, most = [], [0], [0]
    lock = threading.Lock()

    def script(seen, count):
        with lock:
            starts.append(count)
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.15)
        with lock:
            now[0] -= 1
        return Answer(body={"reward": 1})

    async def work(server):
        agent = AgentCoreAgent(ARN, tps=50, concurrency=2, endpoint_url=server.url)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(agent.invoke({}, f"{n:040}", 5.0) for n in range(6)))
        took = loop.time() - began
        await agent.aclose()
        return took

    with ScriptedServer(script) as server:
        took = run(work(server))
    assert (len(starts), most[0]) == (6, 2)
    assert took >= 0.4


def test_no_credentials_and_wrong_arns_are_for_the_person_to_put_right(two_words):
    with pytest.raises(UsageError, match="a runtime ARN is"):
        AgentCoreAgent("arn:aws:lambda:x")
    with pytest.raises(UsageError, match="no AWS credentials"):
        play_one(two_words, AgentCoreAgent(ARN, endpoint_url="http://127.0.0.1:9"))
    with pytest.raises(UsageError, match="http://"):
        HttpAgent("localhost:8080")
    with pytest.raises(UsageError, match="deadline_s > 0"):
        RolloutSettings("http://x", deadline_s=0)


def test_a_response_of_anyone_can_be_read():
    found = read_response({"reward": [1, 0.5], "_rft": {"components": {"a": 1, "b": "x"}}})
    assert (found.rewards, found.components, found.outcome) == ((1.0, 0.5), {"a": 1.0}, None)
    assert read_response({"_rft": {"outcome": ["x"]}}).outcome is None
    assert read_response({"_rft": None}).rewards == ()
    large = {"components": {"a": 10**400, "b": 1e101, "c": 1e100}}
    assert read_response({"reward": 10**99, "_rft": large}).components == {"c": 1e100}


@pytest.mark.parametrize("rewards", [[1e200], [1e100, 1e100]])
def test_a_reported_reward_too_large_to_compare_is_an_error_of_the_agent(two_words, rewards):
    def script(seen, count):
        config = seen.json["_config"]
        for number in range(len(rewards)):
            sample(config, f"go {number}")
        report(config, rewards)
        return Answer(drop=True)

    with ScriptedServer(script) as server:
        played = play_one(two_words, HttpAgent(server.url))
    assert (played.trajectory.outcome, played.trajectory.reward) == (Outcome.AGENT_ERROR, None)
    assert not played.trains


def test_a_reported_reward_that_is_no_float_is_refused_and_nothing_breaks(two_words):
    answers = []

    def script(seen, count):
        config = seen.json["_config"]
        sample(config)
        for rewards in ("[1" + 400 * "0" + "]", "[1e308, 1e308]"):
            answers.append(
                requests.post(
                    f"{config['base_url'].removesuffix('/v1')}/update-reward",
                    data='{"Rewards": ' + rewards + "}",
                    headers={"Authorization": f"Bearer {config['api_key']}"},
                    timeout=10,
                ).status_code
            )
        return Answer(body={"reward": 1})

    with ScriptedServer(script) as server:
        assert play_one(two_words, HttpAgent(server.url)).reward == 1.0
    assert answers == [400, 400]


def test_an_agent_that_leaves_its_result_elsewhere_is_told_where(two_words):
    body = {"status": "processing", "s3_bucket": "b", "result_key": "e/i/s.json"}
    with answering(body) as server:
        played = play_one(two_words, HttpAgent(server.url))
    assert "leaves its result at s3://b/e/i/s.json, where nobody here looks" in played.detail
    with answering({"status": "processing"}) as server:
        played = play_one(two_words, HttpAgent(server.url), deadline_s=0.2, grace_s=0.0)
    assert played.trajectory.outcome is Outcome.TIMEOUT
    assert "must report its reward to the gateway" in played.detail
