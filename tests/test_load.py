"""As many rollouts as a managed job starts at once, in one process, against the gateway as its Job Runtime."""

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from bedrock_agentcore import BedrockAgentCoreApp

from environments.wordle.dataset import make_rows
from rft_agent_sdk import Reward, Rollout, load_environment, play, rft_handler
from rft_agent_sdk.gateway import Gateway, GatewayServer, RolloutState
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.testing import FakeCredentials, call, scripted
from tests.servers import JOB_ARN, managed_payload, serving

ROLLOUTS = 96
"""The most a job has in flight."""
LATENCY_S = 0.2
WORDS = ("slate", "crony", "pudgy")
_SAID = scripted(*(call("guess_word", f'{{"guess": "{word}"}}') for word in WORDS))


async def policy(messages, tools):
    """Guess three words and stop, each after a while, as a model would."""
    await asyncio.sleep(LATENCY_S)
    return _SAID(messages, tools)


def agentcore():
    environment = load_environment("wordle")
    app = BedrockAgentCoreApp()

    @app.entrypoint
    @rft_handler(app=app, floor=environment.floor)
    def invoke(rollout: Rollout) -> Reward:
        return play(environment, rollout)

    return app


def own():
    environment = load_environment("wordle")

    @rft_handler(floor=environment.floor)
    def invoke(rollout: Rollout) -> Reward:
        return play(environment, rollout)

    return asgi_app(invoke, max_rollouts=ROLLOUTS)


@pytest.mark.slow
@pytest.mark.parametrize("served", [agentcore, own])
def test_as_many_rollouts_as_a_job_starts_each_end_with_one_accepted_reward(served, monkeypatch):
    keys = FakeCredentials()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys.secret_key)
    gateway = Gateway(secrets={keys.access_key: keys.secret_key})
    job = gateway.register_job(JOB_ARN, policy=policy)
    rows = [row["prompt"] for row in make_rows("train", ROLLOUTS)]
    with (
        GatewayServer(gateway) as server,
        serving(served()) as url,
        ThreadPoolExecutor(ROLLOUTS) as pool,
    ):
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.url.removeprefix("http://"))

        def ask(number):
            body = managed_payload(server.url, f"r{number}", rows[number % ROLLOUTS])
            return requests.post(url + "/invocations", json=body, timeout=60).json()

        ask(ROLLOUTS)  # the first rollout imports what all of them need
        began = time.monotonic()
        bodies = list(pool.map(ask, range(ROLLOUTS)))
        took_s = time.monotonic() - began
    assert Counter(body["_rft"]["outcome"] for body in bodies) == {"completed": ROLLOUTS}
    assert all(body["_rft"]["reported"] for body in bodies)
    trajectories = {f"r{number}": job.trajectories[f"r{number}"] for number in range(ROLLOUTS)}
    for number, body in enumerate(bodies):
        trajectory = trajectories[f"r{number}"]
        assert trajectory.state is RolloutState.REWARD_RECEIVED
        assert trajectory.rewards == (body["reward"],)
        told = Counter((one.operation, one.status) for one in trajectory.calls)
        assert told["CompleteRollout", 200] == told["UpdateReward", 200] == 1
        assert told["ChatCompletions", 200] == len(trajectory.turns) > 0
        assert len(told) == 3, told
    turns = sum(len(trajectory.turns) for trajectory in trajectories.values())
    print(
        f"\n{served.__name__}: {ROLLOUTS} rollouts of {turns / ROLLOUTS:.1f} turns in {took_s:.1f} s, "
        f"{ROLLOUTS / took_s:.1f} rollouts/s, {turns / took_s:.0f} turns/s"
    )
    assert took_s < ROLLOUTS * LATENCY_S * turns / ROLLOUTS  # and not one after the other
