"""Sessions: the secret is the key, the report is the end."""

import asyncio
import threading

import pytest

from rft_agent_sdk.gateway import Gateway, RolloutState
from rft_agent_sdk.gateway.sessions import digest
from rft_agent_sdk.types import Outcome
from tests.gateway.serve import BODY, bearer, echo, served

REWARD = {"Rewards": [0.5], "Outcome": "truncated"}


@pytest.fixture
def gateway():
    return Gateway()


def test_secrets_are_long_and_distinct_and_only_their_hash_is_kept(gateway):
    one, two = gateway.open(policy=echo), gateway.open(policy=echo)
    assert one.secret != two.secret
    assert len(one.secret) >= 43
    assert gateway.find_session(one.secret) is one.rollout
    assert one.secret not in repr((one, gateway, vars(gateway), vars(one.rollout)))
    assert digest(one.secret) in gateway._sessions


def test_sessions_do_not_share_turns(gateway):
    one, two = gateway.open(policy=echo), gateway.open(policy=echo)
    with served(gateway) as http:
        http.post("/v1/chat/completions", json=BODY, headers=bearer(one.secret))
    assert (len(one.turns), len(two.turns)) == (1, 0)


def test_the_agents_report_ends_the_session(gateway):
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        key = bearer(session.secret)
        http.post("/v1/chat/completions", json=BODY, headers=key)
        early = http.post("/update-reward", json=REWARD, headers=key)
        assert http.post("/complete-rollout", json={}, headers=key).status_code == 200
        late = http.post("/v1/chat/completions", json=BODY, headers=key)
        assert http.post("/update-reward", json=REWARD, headers=key).status_code == 200
    result = session.result(timeout_s=1)
    assert early.status_code == late.status_code == 409
    assert late.headers["x-should-retry"] == "false"
    assert (result.outcome, result.rewards) == (Outcome.TRUNCATED, (0.5,))
    assert (result.state, len(result.turns)) == (RolloutState.REWARD_RECEIVED, 1)


def test_a_failed_rollout_ends_the_session_without_a_reward(gateway):
    session = gateway.open(policy=echo)
    body = {"Status": "failed", "Outcome": "agent_error"}
    with served(gateway) as http:
        http.post("/complete-rollout", json=body, headers=bearer(session.secret))
    result = session.result(timeout_s=1)
    assert (result.state, result.outcome, result.rewards) == (
        RolloutState.FAILED,
        Outcome.AGENT_ERROR,
        (),
    )


def test_an_unknown_outcome_is_refused_by_name(gateway):
    session = gateway.open(policy=echo)
    with served(gateway) as http:
        body = {"Outcome": "brilliant"}
        reply = http.post("/complete-rollout", json=body, headers=bearer(session.secret))
    assert reply.status_code == 400
    assert "Outcome: wanted one of ['completed'" in reply.json()["Message"]


def test_sealing_keeps_what_was_reported_first(gateway):
    session = gateway.open(policy=echo)
    session.rollout.complete(is_ready=True, token=None)
    session.rollout.reward((1.0,), token=None, outcome=Outcome.COMPLETED)
    trajectory = session.seal(Outcome.TIMEOUT, [-1.0])
    assert (trajectory.reward, trajectory.outcome) == (1.0, Outcome.COMPLETED)


def test_sealing_ends_an_open_session(gateway):
    session = gateway.open(policy=echo)
    assert session.seal(Outcome.TIMEOUT).outcome is Outcome.TIMEOUT
    assert session.result(timeout_s=1).state is RolloutState.FAILED
    with served(gateway) as http:
        reply = http.post("/update-reward", json=REWARD, headers=bearer(session.secret))
    assert reply.status_code == 409


def test_a_dropped_session_is_forgotten(gateway):
    session = gateway.open(policy=echo)
    session.drop()
    with served(gateway) as http:
        chat = http.post("/v1/chat/completions", json=BODY, headers=bearer(session.secret))
        report = http.post("/update-reward", json=REWARD, headers=bearer(session.secret))
    assert (chat.status_code, report.status_code) == (401, 401)
    assert session.result(timeout_s=1).state is RolloutState.FAILED


async def test_the_end_can_be_awaited_by_many_and_given_up_by_one(gateway):
    session = gateway.open(policy=echo)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.ended(), 0.01)
    waits = [asyncio.create_task(session.ended()) for _ in range(3)]
    await asyncio.sleep(0)
    threading.Thread(target=session.seal, args=(Outcome.COMPLETED, [1.0])).start()
    results = await asyncio.gather(*waits)
    assert {result.rewards for result in results} == {(1.0,)}


def test_waiting_for_an_end_that_does_not_come_times_out(gateway):
    with pytest.raises(TimeoutError):
        gateway.open(policy=echo).result(timeout_s=0.01)


def test_the_config_of_a_rollout_request_names_the_session(gateway):
    session = gateway.open(policy=echo)
    assert session.config("http://127.0.0.1:1/", deadline_s=9) == {
        "base_url": "http://127.0.0.1:1/v1",
        "api_key": session.secret,
        "model_id": "default",
        "report": True,
        "deadline_s": 9,
    }


def test_sessions_of_one_function_share_one_policy_which_goes_with_them(gateway):
    def mine(messages, tools):
        raise AssertionError

    one, two = gateway.open(policy=mine), gateway.open(policy=mine)
    assert one.rollout.terms.policy is two.rollout.terms.policy
    assert one.rollout.terms.policy is not gateway.open(policy=echo).rollout.terms.policy
