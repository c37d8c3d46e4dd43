"""Logs of jobs and agents, each event once, in order, from the local cloud."""

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.agent_arn import parse_agent
from rft_agent_sdk.mtrl.logs import AgentLog, JobLog, agent_log, agent_log_group, follow, job_log
from tests.mtrl.cloud import ROOT, RUNTIME, account, rft

__all__ = ["account"]
GROUP = "/aws/sagemaker/Job/AgentRFT"
AGENT_GROUP = f"/aws/bedrock-agentcore/runtimes/{RUNTIME}-DEFAULT"


def write(account, *times, group=GROUP, stream="wordle-1/trainer"):
    for at in times:
        account.cloud.log(group, stream, f"{stream} {at}", at)


def read(reader):
    return [event.message for event in reader.read()]


@pytest.fixture
def logs(account):
    return account.clients("logs")


class SmallPages:
    """A real client that asks for small pages, so that a few events take several."""

    def __init__(self, client, limit):
        self._client, self._limit = client, limit

    def get_log_events(self, **asked):
        return self._client.get_log_events(limit=self._limit, **asked)

    def filter_log_events(self, **asked):
        return self._client.filter_log_events(limit=self._limit, **asked)

    def describe_log_streams(self, **asked):
        return self._client.describe_log_streams(limit=1, **asked)


def test_streams_are_merged_by_time_over_all_pages(account, logs):
    write(account, 1, 4, 5, 8, stream="wordle-1/a")
    write(account, 2, 3, 7, stream="wordle-1/b")
    write(account, 6, stream="wordle-10/other-job")
    reader = JobLog(SmallPages(logs, 2), GROUP, "wordle-1/")
    assert [event.at_ms for event in reader.read()] == [1, 2, 3, 4, 5, 7, 8]


def test_what_comes_later_is_read_once_and_from_new_streams_too(account, logs):
    reader = JobLog(SmallPages(logs, 2), GROUP, "wordle-1/")
    assert read(reader) == []  # there is no such group yet
    write(account, 1, 2, 3)
    assert len(read(reader)) == 3
    assert read(reader) == []
    write(account, 4)
    write(account, 2, stream="wordle-1/late")
    assert read(reader) == ["wordle-1/late 2", "wordle-1/trainer 4"]


def test_a_refusal_in_the_middle_loses_nothing_and_repeats_nothing(account, logs):
    write(account, 1, 3, 5, 7, stream="wordle-1/a")
    write(account, 2, 4, 6, 8, stream="wordle-1/b")
    reader = JobLog(SmallPages(logs, 2), GROUP, "wordle-1/")
    found = []
    events = reader.read()
    found += [next(events) for _ in range(3)]
    account.cloud.faults.add("logs", "GetLogEvents", "AccessDeniedException", times=1)
    with pytest.raises(CloudError, match="stream 'wordle-1/a' of '/aws/sagemaker"):
        found += list(events)
    for event in reader.read():
        found.append(event)
    assert [event.at_ms for event in found] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_reader_that_stops_in_a_page_goes_on_behind_it(account, logs):
    write(account, *range(1, 6))
    reader = JobLog(logs, GROUP, "wordle-1/")
    assert next(reader.read()).at_ms == 1
    assert [event.at_ms for event in reader.read()] == [2, 3, 4, 5]


def test_only_what_is_recent_enough_is_read(account, logs):
    write(account, 1000, 2000, 3000)
    account.scripted()
    since = datetime.fromtimestamp(2, UTC)
    assert [event.at_ms for event in job_log(logs, account.job(), since=since).read()] == [
        2000,
        3000,
    ]


def test_an_agent_s_log_is_searched_over_the_job_s_time(account, logs):
    account.scripted()
    job = account.job()
    start = int(job.created.timestamp() * 1000)
    write(account, start - 5000, start + 10, group=AGENT_GROUP, stream="[runtime-logs] a")
    write(account, start + 5, group=AGENT_GROUP, stream="[runtime-logs] b")
    assert job.agent is not None
    reader = agent_log(logs, job, job.agent)
    assert [event.at_ms - start for event in reader.read()] == [5, 10]


def test_a_late_event_of_an_agent_is_read_once_and_an_old_one_not_at_all(account, logs):
    write(account, 500_000, 501_000, group=AGENT_GROUP, stream="a")
    reader = AgentLog(SmallPages(logs, 1), AGENT_GROUP, 100_000)
    assert read(reader) == ["a 500000", "a 501000"]
    write(account, 480_000, 501_500, group=AGENT_GROUP, stream="b")
    write(account, 300_000, group=AGENT_GROUP, stream="b")
    assert read(reader) == ["b 480000", "b 501500"]
    assert read(reader) == []
    assert len(reader._seen) == 4


def test_a_search_that_is_refused_in_the_middle_repeats_nothing(account, logs):
    write(account, 500_000, 501_000, 502_000, group=AGENT_GROUP, stream="a")
    reader = AgentLog(SmallPages(logs, 1), AGENT_GROUP, 0)
    events = reader.read()
    found = [next(events)]
    account.cloud.faults.add("logs", "FilterLogEvents", "AccessDeniedException", times=1)
    with pytest.raises(CloudError):
        found += list(events)
    found += list(reader.read())
    assert [event.at_ms for event in found] == [500_000, 501_000, 502_000]


def test_each_kind_of_agent_has_its_group():
    runtime = parse_agent(f"arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/{RUNTIME}")
    function = parse_agent("arn:aws:lambda:us-west-2:123456789012:function:forward:PROD")
    assert agent_log_group(runtime) == AGENT_GROUP
    assert agent_log_group(function) == "/aws/lambda/forward"


def test_following_goes_on_through_throttling_and_reads_what_comes_last(account, logs, caplog):
    write(account, 1)
    reader = JobLog(logs, GROUP, "wordle-1/")
    # more often than the client itself tries
    account.cloud.faults.add("logs", "DescribeLogStreams", "ThrottlingException", times=4)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        write(account, 1 + len(pauses))

    ended = iter([False, False, True, True])
    found = [event.at_ms for event in follow(reader, lambda: next(ended), poll_s=0.5, sleep=pause)]
    # the job has ended at the third look, and one reading follows for what arrives late
    assert found == [1, 2, 3, 4]
    assert pauses == [0.5] * 3
    assert "not read; trying again" in caplog.text


def test_following_ends_where_reading_is_forbidden(account, logs):
    write(account, 1)
    account.cloud.faults.add("logs", "GetLogEvents", "AccessDeniedException", status=403)
    reader = JobLog(logs, GROUP, "wordle-1/")
    with pytest.raises(CloudError, match="AccessDenied"):
        list(follow(reader, lambda: False, poll_s=0.01))


def test_the_verb_prints_a_job_s_log_and_its_agent_s(account):
    account.create().wait(10)
    done = rft("logs", "wordle-1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split("  ")[1] for line in lines] == [
        f"step {step}/3: 1024 rollouts" for step in (1, 2, 3)
    ]
    assert lines[0][:10] == datetime.now(UTC).strftime("%Y-%m-%d")
    now = int(time.time() * 1000)
    account.cloud.log(AGENT_GROUP, "[runtime-logs] a", "403 from the endpoint\n", now)
    done = rft("logs", "wordle-1", "--agent", "--streams")
    assert done.stdout.endswith("[runtime-logs] a  403 from the endpoint\n")
    assert rft("logs", "wordle-1", "--since", "0.0001").stderr.startswith("nothing is logged yet")


def test_a_line_that_is_no_unicode_ends_nothing(account):
    """As an agent's log may be that prints what a model wrote."""
    account.create().wait(10)
    account.cloud.log(GROUP, "wordle-1/x", "before \ud83d after", int(time.time() * 1000))
    done = subprocess.run(
        [sys.executable, "-m", "rft_agent_sdk.cli", "mtrl", "logs", "wordle-1"],
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"before \\ud83d after" in done.stdout


def test_the_verb_follows_a_job_to_its_end(account):
    account.create()
    done = rft("logs", "wordle-1", "--follow", "--poll", "0.2")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_times_before_the_job_are_not_the_agent_s(account, logs):
    account.scripted()
    job = account.job()
    assert job.agent is not None
    reader = agent_log(logs, job, job.agent, since=job.created - timedelta(hours=1))
    assert isinstance(reader, AgentLog)
    assert reader.start_ms == int(job.created.timestamp() * 1000)
