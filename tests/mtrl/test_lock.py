"""Which agent a job began with, noted and looked after."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.agent_arn import parse_agent
from rft_agent_sdk.mtrl.lock import (
    LockWatch,
    changes,
    compare,
    read_lock,
    take_lock,
    write_lock,
)
from rft_agent_sdk.twins.cloud import Function
from tests.mtrl.cloud import RUNTIME, account, rft

__all__ = ["account"]


def now():
    return datetime.now(UTC)


def agent_of(account, qualifier="DEFAULT"):
    return parse_agent(account.cloud.runtime_arn(RUNTIME), qualifier=qualifier)


def test_a_lock_says_what_is_deployed_and_no_secret_of_it(account, tmp_path):
    lock = take_lock(account.clients, agent_of(account), now())
    assert (lock.version, lock.qualifier) == ("1", "DEFAULT")
    assert lock.artifact == f"s3://agentcore-us-west-2/{RUNTIME}/code.zip"
    assert lock.settings == {"REASONING_EFFORT": "low"}
    assert "a secret" not in repr(lock)
    path = tmp_path / "wordle-1" / "lock.json"
    write_lock(path, lock)
    assert read_lock(path) == lock


def test_an_image_is_known_by_its_uri(account):
    uri = "123456789012.dkr.ecr.us-west-2.amazonaws.com/agent@sha256:" + "0" * 64
    account.cloud.runtimes[RUNTIME].artifact = {"containerConfiguration": {"containerUri": uri}}
    assert take_lock(account.clients, agent_of(account), now()).artifact == uri


def test_a_function_is_known_by_its_digest(account):
    account.cloud.functions["forward"] = Function(code=b"one")
    agent = parse_agent("arn:aws:lambda:us-west-2:123456789012:function:forward")
    before = take_lock(account.clients, agent, now())
    assert before.qualifier is None
    account.cloud.functions["forward"].code = b"two"
    found = compare(before, take_lock(account.clients, agent, now()))
    assert len(found) == 1
    assert found[0].startswith("artifact was ")


def test_nothing_differs_where_nothing_was_deployed(account):
    account.scripted()
    before = take_lock(account.clients, agent_of(account), now())
    assert changes(account.clients, account.job(), before, now()) == []


def test_a_redeployment_is_told_with_what_it_changed(account):
    account.scripted()
    before = take_lock(account.clients, agent_of(account), now())
    account.redeploy(REASONING_EFFORT="medium")
    found = " / ".join(changes(account.clients, account.job(), before, now()))
    assert "version was '1' and is '2'" in found
    assert "{'REASONING_EFFORT': 'low'} and is {'REASONING_EFFORT': 'medium'}" in found
    assert "version 2 was deployed at" in found


def test_an_update_that_nobody_noted_the_start_of_is_told_by_the_versions(account):
    account.create().wait(10)
    job = account.job()
    account.redeploy()
    # after the job's end it is no matter
    assert changes(account.clients, job, None, now()) == []
    account.cloud.runtimes[RUNTIME].updated = job.created + timedelta(milliseconds=1)
    assert changes(account.clients, job, None, now())


def test_another_version_beside_a_pinned_endpoint_is_no_change(account):
    runtime = account.cloud.runtimes[RUNTIME]
    runtime.endpoints = ("DEFAULT", "training")
    document = account.document()
    document["AgentConfig"]["BedrockAgentCoreConfig"]["Qualifier"] = "training"
    account.scripted(document=document)
    runtime.updated = now()
    assert changes(account.clients, account.job(), None, now()) == []


def test_a_watch_tells_each_change_once_and_not_more_often_than_it_looks(account):
    account.scripted()
    job = account.job()
    before = take_lock(account.clients, agent_of(account), now())
    told: list[str] = []
    at = [0.0]
    lock = LockWatch(account.clients, before, told.append, clock=lambda: at[0])
    lock(job)
    account.redeploy()
    lock(job)
    assert told == []  # too soon
    at[0] = 61.0
    lock(job)
    at[0] = 122.0
    lock(job)
    assert told == lock.found
    assert len(told) == len(set(told))
    assert any("version was '1'" in one for one in told)


def test_a_watch_that_may_not_look_says_so_once_and_goes_on(account, caplog):
    account.scripted()
    account.cloud.faults.add(
        "bedrock-agentcore-control", "*", "AccessDeniedException", times=None, status=403
    )
    lock = LockWatch(account.clients, None, every_s=0)
    lock(account.job())
    lock(account.job())
    assert lock.found == []
    assert caplog.text.count("whether the agent is still the same is not known") == 1


def test_a_file_that_is_no_lock_is_refused_by_name(tmp_path):
    path = tmp_path / "lock.json"
    assert read_lock(path) is None
    for text in ("{", '{"agent": 1, "more": 2}', "[]"):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"lock\.json'.*remove the file"):
            read_lock(path)


def test_an_agent_that_is_gone_is_an_error(account):
    with pytest.raises(CloudError, match="cannot be described") as gone:
        take_lock(
            account.clients,
            parse_agent("arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/Gone-aBcDeFgHiJ"),
            now(),
        )
    assert gone.value.is_missing


def test_the_verb_notes_compares_and_warns_by_its_exit_code(account, tmp_path):
    account.scripted()
    first = rft("lock", "wordle-1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "noted in runs/mtrl/wordle-1/lock.json" in first.stderr
    assert json.loads(first.stdout)["version"] == "1"
    assert "a secret" not in first.stdout
    assert rft("lock", "wordle-1", cwd=tmp_path).returncode == 0
    account.redeploy()
    changed = rft("lock", "wordle-1", cwd=tmp_path)
    assert changed.returncode == 5
    assert "WARNING: the agent of this job was changed: version was '1'" in changed.stderr


def test_the_verb_says_of_a_job_that_ended_unnoted_what_is_known(account, tmp_path):
    account.create().wait(10)
    done = rft("lock", "wordle-1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing was noted while it ran" in done.stderr


def test_waiting_for_a_job_whose_agent_was_changed_ends_by_that_code(account, tmp_path):
    record, script = account.scripted()
    assert rft("lock", "wordle-1", cwd=tmp_path).returncode == 0
    account.redeploy()
    # the service tells milliseconds
    script.do(lambda job: job.sleep(0.01), lambda job: job.complete())
    assert record.wait(10)
    waited = rft("wait", "wordle-1", cwd=tmp_path)
    assert waited.returncode == 5
    assert "WARNING: the agent of this job was changed" in waited.stderr
    assert rft("wait", "wordle-1", "--no-lock", cwd=tmp_path).returncode == 0
