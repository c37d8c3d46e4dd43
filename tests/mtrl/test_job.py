"""Jobs as they are described, listed and stopped."""

import json
from datetime import timedelta

import pytest

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.failure import advice
from rft_agent_sdk.mtrl.job import (
    EVALUATION,
    TRAINING,
    Progress,
    Transition,
    describe_job,
    list_jobs,
    stop_job,
)
from rft_agent_sdk.mtrl.job_report import report_json, report_lines
from tests.mtrl.cloud import MODEL, START, a_job, account, channel, rft

__all__ = ["account"]
NOW = START + timedelta(hours=1)


def with_output(**output):
    return a_job(document={"ServiceOutput": output})


def test_a_running_job_is_read_from_what_the_service_answers(account):
    record, script = account.scripted(document=account.document(max_steps="100"))
    script.do(
        lambda job: job.move("Training", "playing"),
        lambda job: job.progress(
            current_step=7, max_steps=100, rollouts_completed=3, rollouts_total=1024
        ),
        lambda job: job.progress(train_tokens=30, prefill_tokens=20, sample_tokens=10),
    )
    job = account.job()
    assert (job.status, job.phase, job.has_ended) == ("InProgress", "Training", False)
    assert job.progress == Progress(7, 100, None, None)
    assert job.rollouts == (3, 1024)
    assert job.tokens == {"TrainTokenCount": 30, "PrefillTokenCount": 20, "SampleTokenCount": 10}
    assert [one.phase for one in job.transitions] == ["Starting", "Training"]
    assert job.transitions[-1].message == "playing"
    assert job.base_model == MODEL
    assert job.agent is not None
    assert job.agent.arn.endswith("Wordle_Wordle-aBcDeFgHiJ")
    assert job.mlflow_app == account.app.arn
    assert job.hyperparameters == {"max_steps": "100"}
    assert job.role == record.request.role_arn


def test_before_the_service_tells_anything_nothing_is_made_up():
    job = a_job()
    assert (job.progress, job.rollouts, job.tokens, job.output_package) == (None, None, {}, None)
    assert (job.agent, job.mlflow_app, job.hyperparameters, job.base_model) == (None, None, {}, "")
    assert job.time_left_s(NOW) is None


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({"CurrentStep": 3, "MaxSteps": 10}, Progress(3, 10, None, None)),
        ({"CurrentStep": "3", "MaxSteps": "10"}, Progress(3, 10, None, None)),
        (
            {"MaxEpoch": 20, "StepsPerEpoch": 5, "CurrentEpoch": 3, "CurrentStep": 2},
            Progress(12, 100, 3, 20),
        ),
        (
            {"MaxEpoch": 20, "StepsPerEpoch": 5, "CurrentStep": 1, "MaxSteps": 40},
            Progress(1, 40, 1, 20),
        ),
        ({"CurrentStep": 3}, None),
        ({"MaxSteps": 3}, None),
        ({"CurrentStep": None, "MaxSteps": True}, None),
        ({}, None),
    ],
)
def test_steps_are_counted_over_all_epochs(info, found):
    assert with_output(ProgressInfo=info).progress == found


def test_the_time_left_is_told_at_the_pace_so_far_without_the_step_being_made():
    job = with_output(ProgressInfo={"CurrentStep": 4, "MaxSteps": 10})
    # 30 minutes of training for 3 steps, 7 to go
    assert job.time_left_s(NOW) == pytest.approx(7 * 600)
    assert with_output(ProgressInfo={"CurrentStep": 1, "MaxSteps": 10}).time_left_s(NOW) is None


def test_the_time_left_of_an_evaluation_is_told_from_its_rollouts():
    job = a_job(
        category=EVALUATION,
        document={"ServiceOutput": {"RolloutInfo": {"Completed": 32, "Total": 128}}},
    )
    assert job.time_left_s(NOW) == pytest.approx(3 * 1800)


def test_a_restart_is_not_counted_as_work():
    at = START + timedelta(minutes=10)
    job = a_job(
        transitions=(
            Transition("Training", START, at, ""),
            Transition("Restarting", at, at + timedelta(minutes=20), ""),
            Transition("Training", at + timedelta(minutes=20), None, ""),
        )
    )
    assert job.worked_s(NOW) == 2400


def test_an_ended_job_has_no_time_left():
    job = a_job(
        status="Failed",
        ended=NOW,
        document={"ServiceOutput": {"ProgressInfo": {"CurrentStep": 4, "MaxSteps": 10}}},
    )
    assert job.time_left_s(NOW) is None


def test_a_document_that_is_no_json_or_has_odd_parts_is_read_as_far_as_it_goes(account):
    job = a_job(document={"ServiceOutput": "x", "InputDataConfig": "x", "AgentConfig": {"a": 1}})
    assert (job.output, job.dataset_uris, job.agent) == ({}, [], None)


def test_a_job_is_found_by_name_in_both_categories_and_by_arn(account):
    account.create("one").wait(10)
    evaluation = {
        "AgentConfig": account.agent_config,
        "InputDataConfig": [channel("evaluation", "s3://data/wordle/val.jsonl")],
        "OutputDataConfig": {
            "S3OutputPath": "s3://data/out",
            "MlflowConfig": {"MlflowResourceArn": account.app.arn},
        },
        "EvaluationConfig": {"BaseModelArn": account.cloud.hub.arn_of(MODEL), "AcceptEula": True},
    }
    record = account.create("two", evaluation, JobCategory=EVALUATION)
    record.wait(10)
    assert account.job("one").category == TRAINING
    assert account.job("two").category == EVALUATION
    assert account.job(record.arn).name == "two"
    client = account.clients("sagemaker")
    with pytest.raises(CloudError, match="no job named 'three' in us-west-2") as none:
        describe_job(client, "three")
    assert none.value.is_missing
    with pytest.raises(UsageError, match="got 'arn:aws:sagemaker:us-west-2:123456789012:job/Other"):
        describe_job(client, "arn:aws:sagemaker:us-west-2:123456789012:job/Other/x")


def test_a_refusal_is_no_missing_job(account):
    account.cloud.faults.add("sagemaker", "DescribeJob", "AccessDeniedException", status=403)
    with pytest.raises(CloudError, match="AccessDeniedException") as refused:
        account.job()
    assert not refused.value.is_missing
    assert not refused.value.is_transient


def test_jobs_are_listed_page_by_page_newest_first(account):
    for number in range(7):
        account.create(f"wordle-{number}").wait(10)
    client = account.clients("sagemaker")
    found = list_jobs(client, TRAINING)
    assert [job.name for job in found] == [f"wordle-{number}" for number in range(6, -1, -1)]
    assert found[0].phase == "Completed"
    assert [job.name for job in list_jobs(client, TRAINING, name_contains="-3")] == ["wordle-3"]
    assert len(list_jobs(client, TRAINING, limit=2)) == 2
    assert list_jobs(client, TRAINING, status="Failed") == []
    assert list_jobs(client, EVALUATION) == []


def test_a_job_is_stopped_once_and_one_that_has_ended_is_left_alone(account):
    record, _ = account.scripted()
    client = account.clients("sagemaker")
    job = account.job()
    assert stop_job(client, job)
    assert record.wait(10)
    # as it was described before, though it has stopped by now
    assert not stop_job(client, job)
    assert not stop_job(client, account.job())
    assert len(account.calls("StopJob")) == 2


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ("No sampling requests were received for this rollout", "AmazonSageMakerJobRuntimeAccess"),
        ("The agent signaled that the trajectory failed", "@rft_handler"),
        ("The rollout completed but no reward was received in time", "rollout_timeout"),
        ("Could not assume role arn:aws:iam::1:role/x", "job.sagemaker.amazonaws.com"),
        ("Something else", "mostly the agent's doing"),
    ],
)
def test_a_reason_of_the_service_comes_with_what_to_do(reason, fix):
    assert fix in advice(a_job(status="Failed", ended=NOW, failure_reason=reason))


def test_a_fault_that_the_service_still_tries_is_advised_on_before_it_gives_up():
    message = "Could not assume role, trying again"
    starting = (Transition("Starting", START, None, message),)
    assert "sts:TagSession" in advice(a_job(phase="Starting", transitions=starting))
    assert advice(a_job()) == ""
    assert advice(a_job(status="Completed", transitions=starting)) == ""


def test_a_failure_outside_training_points_at_the_job_s_log():
    phases = (Transition("Downloading", START, NOW, ""), Transition("Failed", NOW, NOW, ""))
    assert "rft mtrl logs NAME" in advice(a_job(status="Failed", transitions=phases))
    assert "agent" not in advice(a_job(status="Failed", transitions=phases))


def test_a_report_tells_all_of_it():
    document = {
        "ServiceOutput": {
            "ProgressInfo": {"CurrentStep": 4, "MaxSteps": 10},
            "RolloutInfo": {"Completed": 3, "Total": 1024},
            "BillableTokenUsage": {"TrainTokenCount": 1234567},
            "OutputModelPackageArn": "arn:package",
            "MlflowDetails": {"RunName": "run", "ExperimentName": "wordle"},
        }
    }
    text = "\n".join(report_lines(a_job(document=document), NOW))
    for part in (
        "wordle-1  AgentRFT  InProgress, Training",
        "running for 1:00:00",
        "step 4 of 10, rollouts 3 of 1024, about 1:10:00 left",
        "1,234,567 TrainTokenCount",
        "output package arn:package",
        "MLflow run 'run' of experiment 'wordle'",
        "Starting       0:30:00",
    ):
        assert part in text
    told = report_json(a_job(document=document), NOW)
    assert told["progress"] == {"step": 4, "max_steps": 10, "epoch": None, "max_epochs": None}
    assert told["time_left_s"] == pytest.approx(4200)
    assert json.loads(json.dumps(told)) == told


def test_status_and_list_tell_a_failed_job_and_its_fix(account):
    account.cloud.roles["JobRole"].trust = {"Version": "2012-10-17", "Statement": []}
    account.create().wait(10)
    told = rft("status", "wordle-1")
    assert told.returncode == 0, told.stderr
    assert "failed: Could not assume role" in told.stdout
    assert "what to do: The job's role must trust job.sagemaker.amazonaws.com" in told.stdout
    as_json = json.loads(rft("status", "wordle-1", "--json").stdout)
    assert (as_json["status"], as_json["phase"]) == ("Failed", "Failed")
    assert "sts:TagSession" in as_json["advice"]
    line = rft("list", "--training").stdout.strip().split("\t")
    assert line[:4] == ["wordle-1", "AgentRFT", "Failed", "Failed"]
    assert rft("list", "--evaluations").stderr == "no job\n"


def test_output_prints_the_package_alone_or_says_why_there_is_none(account):
    account.create().wait(10)
    done = rft("output", "wordle-1")
    assert done.stdout == f"{account.output.packages[1].arn}\n"
    account.scripted("wordle-2")
    done = rft("output", "wordle-2")
    assert done.returncode == 2
    assert "has left no model package: it is InProgress" in done.stderr
