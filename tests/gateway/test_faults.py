"""Faults: laid where they were asked for, the same with the same seed, and counted."""

import threading
from typing import Any

import httpx
import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway import Fault, Faults, Gateway
from tests.gateway.serve import BODY, JOB, bearer, echo, events, job_headers, mint, served

CHAT = "/v1/chat/completions"
STREAMED = BODY | {"stream": True}


def plan(faults: Faults, rollout: str = "r", count: int = 200) -> list[Fault | None]:
    return [faults.plan(rollout, index) for index in range(count)]


def test_no_faults_is_nothing_at_all():
    assert set(plan(Faults())) == {None}


def test_firsts_come_one_kind_after_the_other_and_then_end():
    faults = Faults(deny_once=True, throttle_first=2, error_first=1, drop_first=1)
    assert plan(faults, count=6) == [
        Fault.DENY,
        Fault.THROTTLE,
        Fault.THROTTLE,
        Fault.ERROR,
        Fault.DROP,
        None,
    ]


def test_rates_repeat_with_the_seed_and_differ_between_rollouts_and_seeds():
    faults = Faults(throttle_rate=0.3, drop_rate=0.1, seed=7)
    assert plan(faults) == plan(faults)
    assert plan(faults) != plan(faults, "other")
    assert plan(faults) != plan(Faults(throttle_rate=0.3, drop_rate=0.1, seed=8))
    found = plan(faults, count=2000)
    assert found.count(Fault.THROTTLE) == pytest.approx(600, abs=80)
    assert found.count(Fault.DROP) == pytest.approx(200, abs=60)


@pytest.mark.parametrize("rates", [{"drop_rate": -0.1}, {"drop_rate": 0.6, "error_rate": 0.6}])
def test_rates_that_are_no_probabilities_are_refused(rates):
    with pytest.raises(UsageError, match="probabilities"):
        Faults(**rates)


def statuses(
    http: httpx.Client, count: int, path: str = CHAT, body: Any = BODY, headers: Any = None
) -> list[int | None]:
    found: list[int | None] = []
    for _ in range(count):
        try:
            found.append(http.post(path, json=body, headers=headers).status_code)
        except httpx.RemoteProtocolError:
            found.append(None)
        except httpx.ReadError:
            found.append(None)
    return found


def test_each_fault_reaches_the_client_and_the_record():
    gateway = Gateway()
    faults = Faults(
        deny_once=True, throttle_first=1, error_first=1, drop_first=1, lose_reply_first=1
    )
    session = gateway.open(policy=echo, faults=faults)
    with served(gateway) as http:
        found = statuses(http, 6, headers=bearer(session.secret))
    assert found == [403, 429, 500, None, None, 200]
    assert [call.fault for call in session.rollout.calls] == [*Fault, None]
    assert len(session.turns) == 2  # the lost reply was stored all the same
    assert session.rollout.faults.counts == dict.fromkeys(Fault, 1)


def test_a_403_comes_once_for_each_trajectory():
    gateway = Gateway()
    job = gateway.register_job(JOB, policy=echo, faults=Faults(deny_once=True))
    with served(gateway) as http:
        for name in ("t1", "t2"):
            headers = job_headers(mint(), name)
            assert statuses(http, 3, "/sample", headers=headers) == [403, 200, 200]
    assert job.fault_counts == {Fault.DENY: 2}


def test_faults_of_reports_leave_sampling_alone():
    gateway = Gateway()
    session = gateway.open(policy=echo, report_faults=Faults(throttle_first=1, drop_first=1))
    key = bearer(session.secret)
    with served(gateway) as http:
        assert statuses(http, 2, headers=key) == [200, 200]
        assert statuses(http, 3, "/complete-rollout", {}, key) == [429, None, 200]


def test_a_lost_stream_breaks_off_after_its_first_piece_and_is_stored():
    gateway = Gateway()
    session = gateway.open(policy=echo, faults=Faults(lose_reply_first=1))
    parts: list[str] = []
    with (
        served(gateway) as http,
        http.stream("POST", CHAT, json=STREAMED, headers=bearer(session.secret)) as reply,
        pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)),
    ):
        parts.extend(reply.iter_text())
    found = events("".join(parts))
    assert [event["choices"][0]["delta"].get("content") for event in found] == ["", "you said go"]
    assert len(session.turns) == 1


def test_a_delay_holds_up_one_request_and_not_the_others():
    gateway = Gateway()
    slow = gateway.open(policy=echo, faults=Faults(delay_s=0.3))
    quick = gateway.open(policy=echo)
    with served(gateway) as http:
        other = threading.Thread(
            target=statuses, args=(http, 1), kwargs={"headers": bearer(slow.secret)}
        )
        other.start()
        assert statuses(http, 1, headers=bearer(quick.secret)) == [200]
        assert not slow.turns
        other.join()
    assert len(slow.turns) == 1
