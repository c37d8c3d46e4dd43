"""Watching a job to its end: what is told, what is waited out, and by which exit code it ends."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.aws import Clients
from rft_agent_sdk.mtrl.job import Transition, describe_again, describe_job
from rft_agent_sdk.mtrl.wait import Narrator, watch
from rft_agent_sdk.twins.cloud import FailsWith
from tests.mtrl.cloud import ROOT, START, a_job, account, rft

__all__ = ["account"]
NOW = START + timedelta(hours=1)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def looks(*found):
    """Return a look that finds one thing after the other; an error is raised."""
    given = iter(found)

    def look():
        one = next(given)
        if isinstance(one, Exception):
            raise one
        return one

    return look


def lost():
    return CloudError("job cannot be described: connection lost", is_transient=True)


def at_step(step):
    return a_job(document={"ServiceOutput": {"ProgressInfo": {"CurrentStep": step, "MaxSteps": 9}}})


def done(**changes):
    return a_job(status="Completed", phase="Completed", ended=NOW, **changes)


def test_only_changes_are_told_and_the_end_ends_it():
    clock = Clock()
    jobs = [at_step(1), at_step(1), at_step(2), at_step(2), done()]
    found = list(watch(looks(*jobs), poll_s=30, clock=clock, sleep=clock.sleep))
    assert found == [at_step(1), at_step(2), done()]
    assert clock.pauses == [30] * 4


def test_lost_connections_are_waited_out_with_growing_pauses_for_as_long_as_it_takes(caplog):
    clock = Clock()
    failures = [lost() for _ in range(9)]
    found = list(
        watch(looks(at_step(1), *failures, done()), poll_s=5, clock=clock, sleep=clock.sleep)
    )
    assert found == [at_step(1), done()]
    assert clock.pauses == [5, 5, 10, 20, 40, 80, 120, 120, 120, 120]
    assert caplog.text.count("no answer; the job goes on") == 1


def test_a_refusal_that_no_try_can_help_is_raised():
    refusal = CloudError("AccessDeniedException", code="AccessDeniedException")
    with pytest.raises(CloudError, match="AccessDenied"):
        list(watch(looks(at_step(1), refusal), poll_s=0))


def test_the_time_that_somebody_gives_is_kept_and_there_is_no_other_limit():
    clock = Clock()
    found = list(
        watch(
            looks(*[at_step(1)] * 9),
            poll_s=1000,
            timeout_s=3500,
            clock=clock,
            sleep=clock.sleep,
        )
    )
    assert not found[-1].has_ended
    assert clock.now == 3500
    clock = Clock()
    jobs = [at_step(1)] * 5000 + [done()]
    assert list(watch(looks(*jobs), poll_s=30, clock=clock, sleep=clock.sleep))[-1].has_ended
    assert clock.now == 150_000


def test_without_one_answer_in_time_the_reason_is_raised():
    clock = Clock()
    with pytest.raises(CloudError, match="connection lost"):
        list(
            watch(
                looks(*[lost() for _ in range(9)]),
                poll_s=10,
                timeout_s=30,
                clock=clock,
                sleep=clock.sleep,
            )
        )


def test_each_look_is_passed_on_changed_or_not():
    seen: list = []
    jobs = [at_step(1), at_step(1), done()]
    list(watch(looks(*jobs), poll_s=0, at_each_look=seen.append))
    assert seen == jobs


def test_each_fact_is_told_once():
    narrator = Narrator()
    told = narrator.lines(at_step(1), NOW)
    assert [line[21:] for line in told] == ["Starting", "Training", "step 1 of 9"]
    assert narrator.lines(at_step(1), NOW) == []
    told = narrator.lines(at_step(2), NOW)
    assert [line[21:] for line in told] == ["step 2 of 9, about 4:00:00 left"]
    later = replace(
        at_step(2),
        status="Failed",
        failure_reason="No reward",
        transitions=(
            *at_step(2).transitions[:1],
            replace(at_step(2).transitions[1], message="trying again"),
            Transition("Failed", NOW, NOW, "No reward"),
        ),
    )
    told = [line[21:] for line in narrator.lines(later, NOW)]
    assert told == [
        "Training: trying again",
        "Failed",
        "Failed: No reward",
    ]


def test_steps_are_told_on_request_only():
    assert not any("step" in line for line in Narrator(with_progress=False).lines(at_step(1), NOW))


@pytest.mark.parametrize(
    ("runner", "code", "word"),
    [
        (None, 0, "output package arn:aws:sagemaker"),
        (FailsWith(), 1, "what to do: A rollout ended without one model call"),
    ],
)
def test_the_exit_code_tells_a_failed_job_from_a_completed_one(
    account, tmp_path, runner, code, word
):
    if runner is not None:
        account.cloud.runner = runner
    account.create()
    ended = rft("wait", "wordle-1", "--poll", "0.1", cwd=tmp_path)
    assert ended.returncode == code, ended.stderr
    assert word in ended.stdout + ended.stderr
    # and again, of a job that ended long ago
    assert rft("wait", "wordle-1", cwd=tmp_path).returncode == code


def test_a_stopped_job_and_the_end_of_patience_have_codes_of_their_own(account, tmp_path):
    record, _ = account.scripted()
    waited = rft("wait", "wordle-1", "--poll", "0.05", "--timeout", "0.3", cwd=tmp_path)
    assert (waited.returncode, waited.stderr) == (4, "the time is up; the job goes on\n")
    stopped = rft("stop", "wordle-1", "--poll", "0.05")
    assert stopped.returncode == 0
    assert stopped.stdout.splitlines() == ["wordle-1\tstopping", "wordle-1\tStopped"]
    assert "goes on from a checkpoint" in stopped.stderr
    assert record.status == "Stopped"
    assert rft("wait", "wordle-1", cwd=tmp_path).returncode == 3
    again = rft("stop", "wordle-1")
    assert (again.returncode, again.stdout) == (0, "wordle-1\thad ended already: Stopped\n")


def test_attach_tells_where_a_job_stands_and_each_step_from_there(account, tmp_path):
    _, script = account.scripted()
    script.do(
        lambda job: job.move("Training"), lambda job: job.progress(current_step=1, max_steps=3)
    )

    def go_on():
        while not (tmp_path / "runs/mtrl/wordle-1/lock.json").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        script.do(lambda job: job.progress(current_step=2))
        time.sleep(0.5)
        script.do(lambda job: job.complete())

    thread = threading.Thread(target=go_on)
    thread.start()
    attached = rft("attach", "wordle-1", "--poll", "0.1", cwd=tmp_path)
    thread.join()
    assert attached.returncode == 0, attached.stderr
    assert attached.stdout.startswith("wordle-1  AgentRFT  InProgress, Training")
    lines = attached.stdout.splitlines()
    assert sum("step 1 of 3" in line for line in lines) == 1
    assert sum("step 2 of 3" in line for line in lines) == 1
    assert lines[-1].endswith("Completed")


@pytest.mark.parametrize("verb", ["wait", "attach"])
@pytest.mark.parametrize("looks", [0, 1])
@pytest.mark.parametrize(
    "error", ["ExpiredTokenException", "AccessDeniedException", "ResourceNotFound"]
)
def test_a_job_that_nobody_can_look_at_has_not_failed(account, tmp_path, verb, looks, error):
    account.scripted()
    faults = account.cloud.faults

    def forbid():
        while len(account.calls("DescribeJob")) < looks:
            time.sleep(0.01)
        faults.add("sagemaker", "DescribeJob", error, times=None, status=400)

    thread = threading.Thread(target=forbid)
    thread.start()
    if not looks:
        thread.join()
    waited = rft(verb, "wordle-1", "--poll", "0.05", cwd=tmp_path)
    thread.join()
    assert waited.returncode == 6, waited.stderr
    assert "nothing is known of the job's end" in waited.stderr
    goes_on = "if it runs, the job goes on: `rft mtrl attach wordle-1`"
    assert (goes_on in waited.stderr) is (error != "ResourceNotFound")


class _Page(http.server.BaseHTTPRequestHandler):
    """What a proxy on the way may answer for the service."""

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>please log in</html>")

    def log_message(self, *args):
        pass


def test_an_answer_that_is_no_job_is_waited_out(account, monkeypatch):
    with http.server.HTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with Clients("us-west-2") as clients, pytest.raises(CloudError) as told:
            describe_again(clients("sagemaker"), at_step(1))
        server.shutdown()
    assert told.value.is_transient


def test_throttling_is_survived_by_the_verb(account, tmp_path):
    account.create().wait(10)
    # the first look is the client's own to repeat; all later ones are throttled for a while
    job = describe_job(account.clients("sagemaker"), "wordle-1")
    account.cloud.faults.add("sagemaker", "DescribeJob", "ThrottlingException", times=4)
    found = list(watch(lambda: describe_job(account.clients("sagemaker"), "wordle-1"), poll_s=0.01))
    assert found == [job]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_job_and_says_how_to_come_back(account, tmp_path, number, code):
    record, _ = account.scripted()
    process = subprocess.Popen(
        [sys.executable, "-m", "rft_agent_sdk.cli", "mtrl", "wait", "wordle-1", "--poll", "0.1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lock = tmp_path / "runs/mtrl/wordle-1/lock.json"
    while not lock.exists():
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    _, told = process.communicate(timeout=20)
    assert process.returncode == code
    assert "the job goes on: `rft mtrl attach wordle-1`" in told
    assert record.status == "InProgress"
    assert json.loads(lock.read_text())["version"] == "1"
