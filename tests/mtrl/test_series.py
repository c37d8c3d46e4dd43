"""Series of evaluations against the local cloud: one at a time, interrupted, resumed, at several efforts."""

import json
import threading
import time
from datetime import UTC, datetime

import pytest

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.evaluate import (
    Pace,
    SeriesTimeout,
    deployed_agent,
    retry_failed,
    run_series,
)
from rft_agent_sdk.mtrl.evaluation import Evaluated, Setting
from rft_agent_sdk.mtrl.job import EVALUATION
from rft_agent_sdk.mtrl.mlflow import run_metrics
from rft_agent_sdk.mtrl.series import open_series
from rft_agent_sdk.training.files import locked
from rft_agent_sdk.twins.cloud import FailsWith
from tests.mtrl.cloud import MODEL, Script, account, rft

__all__ = ["account"]


class Plays:
    """Runs evaluation jobs: says how many tasks there were, and a rate that depends on the temperature."""

    def __init__(self, pause_s=0.0):
        self.pause_s = pause_s

    def __call__(self, job):
        values = job.document["EvaluationConfig"]["HyperParameters"]
        trained = "ModelPackageConfig" in job.document
        job.move("Evaluating")
        job.progress(rollouts_completed=16, rollouts_total=16, sample_tokens=100)
        job.sleep(self.pause_s)
        rate = 0.25 + 0.5 * trained + 0.125 * float(values["temperature"])
        job.metrics(0, {"eval/reward/mean": rate, "eval/reward/std": 1.0})
        job.metrics(0, {"eval/reward/num_prompts": 16.0, "eval/reward/pass_at_1": rate})
        job.complete()


def now():
    return datetime.now(UTC)


def setting(account, **changes):
    given = {
        "role": account.cloud.role_arn("JobRole"),
        "agent": account.agent_config,
        "base_model": account.cloud.hub.arn_of(MODEL),
        "dataset": "s3://data/wordle/val.jsonl",
        "output": "s3://data/wordle/out",
        "mlflow_app": account.app.arn,
        "experiment": "mtrl-eval",
        "accept_eula": True,
    }
    return Setting(**{**given, **changes})


@pytest.fixture
def package(account):
    """ARN of a trained package."""
    return account.cloud.make_model_package("wordle-output", "s3://data/x")


@pytest.fixture
def series(account, tmp_path):
    account.cloud.runner = Plays()
    return open_series(tmp_path / "evaluation", setting(account))


def run(account, series, cells, told=None, **more):
    run_series(
        account.clients,
        series,
        cells,
        name="eval",
        tell=(lambda line: None) if told is None else told.append,
        **{"pace": Pace(poll_s=0.02), **more},
    )


def states(series):
    kept = json.loads((series.folder / "series.json").read_text())["cells"]
    return [(cell["label"], cell["temperature"], cell["effort"], cell["status"]) for cell in kept]


def test_models_and_temperatures_are_played_one_at_a_time_and_kept(account, series, package):
    models = [Evaluated("base"), Evaluated("trained", package)]
    run(account, series, series.plan(models, [0.0, 1.0], "low"))
    assert states(series) == [
        ("base", 0.0, "low", "Completed"),
        ("base", 1.0, "low", "Completed"),
        ("trained", 0.0, "low", "Completed"),
        ("trained", 1.0, "low", "Completed"),
    ]
    # no two ran at a time: the service would have refused the second
    assert len(account.calls("CreateJob")) == 4
    found = {(one.label, one.temperature): one for one in series.results()}
    assert found["trained", 1.0].pass_at[1].value == 0.875
    assert found["base", 0.0].mean_reward.value == 0.25
    assert found["base", 0.0].tasks == 16
    assert found["base", 0.0].agent_version == "1"
    assert all(cell.source == "MLflow" for cell in series.cells)
    documents = [job.document for job in account.cloud.jobs.values()]
    assert [one["EvaluationConfig"]["HyperParameters"]["temperature"] for one in documents] == [
        "0.0",
        "1.0",
        "0.0",
        "1.0",
    ]


def test_what_is_done_is_not_done_again(account, series):
    run(account, series, series.plan([Evaluated("base")], [0.0], "low"))
    again = open_series(series.folder, setting(account))
    run(account, again, again.plan([Evaluated("base")], [0.0, 1.0], "low"))
    assert len(account.calls("CreateJob")) == 2


def test_an_interrupted_series_takes_up_the_job_that_it_began(account, series):
    account.cloud.runner = Plays(pause_s=0.5)
    cells = series.plan([Evaluated("base")], [0.0, 1.0], "low")
    with pytest.raises(SeriesTimeout):
        run(account, series, cells, pace=Pace(poll_s=0.02, timeout_s=0.2))
    assert states(series) == [
        ("base", 0.0, "low", "InProgress"),
        ("base", 1.0, "low", None),
    ]
    again = open_series(series.folder, None)
    run(account, again, again.cells)
    assert [one.status for one in again.cells] == ["Completed"] * 2
    assert len(account.calls("CreateJob")) == 2


def test_a_job_whose_name_was_kept_and_that_was_never_created_is_created(account, series):
    (cell,) = series.plan([Evaluated("base")], [0.0], "low")
    cell.job = "eval-base-t0-20261129120000"
    series.save()
    run(account, series, series.cells)
    assert list(account.cloud.jobs) == ["eval-base-t0-20261129120000"]


def test_an_answer_that_was_lost_does_not_make_a_second_job(account, series):
    account.cloud.faults.add("sagemaker", "CreateJob", "InternalFailure", status=500, after=True)
    run(account, series, series.plan([Evaluated("base")], [0.0], "low"))
    assert len(account.cloud.jobs) == 1
    assert series.cells[0].is_done


def test_a_job_in_the_way_is_named_and_waited_for(account, series):
    script = Script()
    account.cloud.runner = script
    account.create(
        "someone-else",
        json.loads(evaluation_of(account)),
        JobCategory=EVALUATION,
    )
    account.cloud.runner = Plays()
    told: list[str] = []
    thread = threading.Thread(
        target=run,
        args=(account, series, series.plan([Evaluated("base")], [0.0], "low"), told),
    )
    thread.start()
    while not told[1:]:
        time.sleep(0.01)
    script.do(lambda job: job.complete())
    thread.join(20)
    assert "waiting for someone-else: the account runs no more evaluations at a time" in told[1]
    assert sum("waiting" in line for line in told) == 1
    assert series.cells[0].is_done


def evaluation_of(account):
    from rft_agent_sdk.mtrl.evaluation import evaluation_document

    return json.dumps(evaluation_document(setting(account), Evaluated("base"), 0.0))


def test_a_quota_of_nought_is_told_instead_of_waiting_for_ever(account, series):
    account.cloud.job_concurrency = 0
    with pytest.raises(UsageError, match="quota of concurrent evaluation jobs is probably 0"):
        run(
            account,
            series,
            series.plan([Evaluated("base")], [0.0], "low"),
            pace=Pace(poll_s=0.001),
        )


def test_a_job_that_fails_is_kept_as_failed_and_the_next_one_goes_on(account, series):
    account.cloud.runner = FailsWith()
    cells = series.plan([Evaluated("base")], [0.0, 1.0], "low")
    told: list[str] = []
    run(account, series, cells[:1], told)
    assert any("A rollout ended without one model call" in line for line in told)
    account.cloud.runner = Plays()
    run(account, series, cells)
    assert [cell.status for cell in cells] == ["Failed", "Completed"]
    assert cells[0].failure.startswith("No sampling requests")
    assert [one.temperature for one in series.results()] == [1.0]
    assert retry_failed(cells) == 1
    run(account, series, cells)
    assert [cell.status for cell in cells] == ["Completed"] * 2


def test_numbers_that_cannot_be_read_are_read_the_next_time(account, series, caplog):
    account.cloud.faults.add(
        "sagemaker", "CreatePresignedMlflowAppUrl", "AccessDeniedException", times=3, status=403
    )
    cells = series.plan([Evaluated("base")], [0.0], "low")
    run(account, series, cells)
    assert (cells[0].status, cells[0].is_done) == ("Completed", False)
    assert "its numbers cannot be read yet" in caplog.text
    again = open_series(series.folder, None)
    run(account, again, again.cells)
    assert again.cells[0].is_done
    assert len(account.calls("CreateJob")) == 1


def test_numbers_of_the_document_come_before_those_of_mlflow(account, series):
    def plays(job):
        job.tell("EvaluationMetrics", {"reward": {"mean": 0.5, "pass_at_1": 0.75}})
        Plays()(job)

    account.cloud.runner = plays
    run(account, series, series.plan([Evaluated("base")], [0.0], "low"))
    assert series.cells[0].source == "ServiceOutput"
    assert series.results()[0].pass_at[1].value == 0.75
    assert account.calls("CreatePresignedMlflowAppUrl") == []


def test_the_effort_is_the_deployed_one_and_another_needs_a_deployment(account, series):
    assert deployed_agent(account.clients, series, None, now()).effort == "low"
    assert deployed_agent(account.clients, series, "low", now()).effort == "low"
    with pytest.raises(UsageError, match=r"asks for 'low'.*agentcore/agentcore\.json, deploy"):
        deployed_agent(account.clients, series, "medium", now())
    account.cloud.runtimes[next(iter(account.cloud.runtimes))].environment = {}
    assert deployed_agent(account.clients, series, None, now()).effort == "default"


def test_an_effort_that_cannot_be_read_must_be_stated_and_is_told_as_such(account, series):
    account.cloud.faults.add(
        "bedrock-agentcore-control", "*", "AccessDeniedException", times=None, status=403
    )
    with pytest.raises(CloudError, match="AccessDenied"):
        deployed_agent(account.clients, series, None, now())
    run(
        account,
        series,
        series.plan([Evaluated("base")], [0.0], "medium"),
        stated_effort="medium",
    )
    (found,) = series.results()
    assert (found.effort, found.agent_version) == ("medium", "")
    assert "could not be read" in found.remarks[0]


def test_an_agent_that_is_redeployed_between_two_jobs_ends_the_series(account, series):
    cells = series.plan([Evaluated("base")], [0.0, 1.0], "low")
    run(account, series, cells[:1])
    account.redeploy(REASONING_EFFORT="medium")
    with pytest.raises(UsageError, match="redeployed meanwhile and asks for 'medium' now"):
        run(account, series, cells)


def test_an_agent_that_is_redeployed_within_a_job_leaves_a_remark(account, series):
    def plays(job):
        job.sleep(0.1)
        account.redeploy()
        Plays(0.1)(job)

    account.cloud.runner = plays
    run(account, series, series.plan([Evaluated("base")], [0.0], "low"))
    (found,) = series.results()
    assert any("the agent changed meanwhile" in one for one in found.remarks)


def test_throttling_is_waited_out_wherever_it_comes(account, series):
    faults = account.cloud.faults
    cells = series.plan([Evaluated("base")], [0.0], "low")
    # three tries of botocore's own make one of ours
    faults.add("bedrock-agentcore-control", "GetAgentRuntime", "ThrottlingException", times=4)
    faults.add("sagemaker", "DescribeJob", "ThrottlingException", times=4)
    faults.add("sagemaker", "CreateJob", "ResourceLimitExceeded")
    faults.add("sagemaker", "ListJobs", "ThrottlingException", times=4)
    run(account, series, cells)
    assert states(series) == [("base", 0.0, "low", "Completed")]
    assert len(account.cloud.jobs) == 1


def test_a_job_of_a_kept_name_that_is_another_one_is_not_taken_for_ours(account, series):
    (cell,) = series.plan([Evaluated("base")], [0.0], "low")
    cell.job = "eval-1"
    document = json.loads(evaluation_of(account))
    document["EvaluationConfig"]["HyperParameters"]["temperature"] = "1.0"
    account.create("eval-1", document, JobCategory=EVALUATION).wait(10)
    with pytest.raises(CloudError, match="ResourceInUse"):
        run(account, series, series.cells)
    assert cell.status is None


def test_another_series_in_the_same_folder_is_refused(account, series):
    series.plan([Evaluated("base")], [0.0], "low")
    series.save()
    with pytest.raises(UsageError, match="holds a series with another dataset, experiment"):
        open_series(series.folder, setting(account, dataset="s3://data/x", experiment="y"))
    # how long a job may take makes no other numbers
    open_series(series.folder, setting(account, max_runtime_s=1000))
    with pytest.raises(UsageError, match="'base' stands for the base model there"):
        series.plan([Evaluated("base", "arn:package")], [0.0], "low")


def test_a_folder_without_a_series_and_a_file_that_is_none_are_told(tmp_path):
    with pytest.raises(UsageError, match="holds no series of evaluations"):
        open_series(tmp_path, None)
    for text in ("{", "[]", "{}", '{"setting": {}, "cells": []}'):
        (tmp_path / "series.json").write_text(text)
        with pytest.raises(UsageError):
            open_series(tmp_path, None)


def test_an_mlflow_that_refuses_tells_no_address(account, monkeypatch):
    run_id = account.cloud.mlflow.make_run("e", "r").run_id
    account.cloud.mlflow.runs[run_id].log(0, {"a": 1.0})
    account.cloud.mlflow.runs[run_id].log(1, {"a": 2.0})
    assert run_metrics(account.clients, account.app.arn, run_id) == {"a": 2.0}
    with pytest.raises(CloudError) as refused:
        run_metrics(account.clients, account.app.arn, "none")
    assert refused.value.is_missing
    assert "authToken" not in str(refused.value)
    assert refused.value.__cause__ is None


def trained_job(account):
    account.create("wordle-1").wait(10)
    account.cloud.runner = Plays()


def evaluate(tmp_path, *more):
    return rft(
        "evaluate",
        "--job",
        "wordle-1",
        "--dataset",
        "s3://data/wordle/val.jsonl",
        "--poll",
        "0.05",
        "--run-dir",
        tmp_path / "run",
        *more,
    )


def test_the_verb_evaluates_base_and_trained_and_draws_them(account, tmp_path):
    trained_job(account)
    done = evaluate(tmp_path, "--temperature", "0,1", "--reasoning-effort", "low")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("base     low               0")
    assert "87.5%" in lines[4]
    assert lines[-1] == "trained, low effort, temperature 1: pass@1 +50.0 points over base"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        ".lock",
        "series.json",
        "results.json",
        "evaluation.png",
        "evaluation.svg",
    }
    kept = json.loads((tmp_path / "run/results.json").read_text())
    assert [one["reasoning_effort"] for one in kept["results"]] == ["low"] * 4


def test_the_verb_goes_on_at_another_effort_only_if_that_is_said(account, tmp_path):
    trained_job(account)
    assert evaluate(tmp_path, "--no-plot").returncode == 0
    account.redeploy(REASONING_EFFORT="medium")
    refused = rft("evaluate", "--run-dir", tmp_path / "run")
    assert refused.returncode == 2
    assert "different reasoning efforts (low, medium)" in refused.stderr
    assert len(account.calls("CreateJob")) == 3
    done = rft(
        "evaluate", "--run-dir", tmp_path / "run", "--across-efforts", "--no-plot", "--poll", "0.05"
    )
    assert done.returncode == 0, done.stderr
    efforts = [line.split()[1] for line in done.stdout.splitlines()[1:5]]
    assert efforts == ["low", "low", "medium", "medium"]


def test_a_cell_whose_job_was_refused_is_not_played_once_nobody_asks_for_it(account, tmp_path):
    trained_job(account)
    account.cloud.faults.add("sagemaker", "CreateJob", "ValidationException")
    assert evaluate(tmp_path, "--temperature", "0.3", "--no-base", "--no-plot").returncode == 1
    done = evaluate(tmp_path, "--temperature", "0.5", "--no-base", "--no-plot")
    assert done.returncode == 0, done.stderr
    played = [job for job in account.cloud.jobs.values() if job.category == EVALUATION]
    assert [
        job.document["EvaluationConfig"]["HyperParameters"]["temperature"] for job in played
    ] == ["0.5"]


def test_a_cell_whose_job_runs_is_followed_though_nobody_asks_for_it_any_more(account, tmp_path):
    trained_job(account)
    account.cloud.runner = Plays(0.5)
    late = evaluate(tmp_path, "--temperature", "0.3", "--no-base", "--no-plot", "--timeout", "0.1")
    assert late.returncode == 4
    done = evaluate(tmp_path, "--temperature", "0.5", "--no-base", "--no-plot")
    assert done.returncode == 0, done.stderr
    assert [line.split()[2] for line in done.stdout.splitlines()[1:3]] == ["0.3", "0.5"]


def test_two_processes_do_not_play_one_series(account, tmp_path):
    trained_job(account)
    with locked(tmp_path / "run"):
        refused = evaluate(tmp_path)
    assert refused.returncode == 2
    assert "belongs to a run that is at work" in refused.stderr
    assert len(account.calls("CreateJob")) == 1
    assert evaluate(tmp_path, "--dry-run").returncode == 0


def test_the_verb_prints_documents_and_creates_nothing(account, tmp_path):
    trained_job(account)
    before = len(account.cloud.mutations)
    done = evaluate(tmp_path, "--dry-run", "--temperature", "0.7", "--group-size", "4")
    assert done.returncode == 0, done.stderr
    base, trained = json.loads(done.stdout)
    assert base["JobCategory"] == "AgentRFTEvaluation"
    values = base["JobConfigDocument"]["EvaluationConfig"]["HyperParameters"]
    assert values == {
        "eval_group_size": "4",
        "pass_k_values": "[1, 2, 4]",
        "temperature": "0.7",
    }
    assert trained["JobConfigDocument"]["ModelPackageConfig"] == {
        "InputModelPackageArn": account.output.packages[1].arn
    }
    assert len(account.cloud.mutations) == before
    assert not (tmp_path / "run").exists()


def test_the_verb_tells_what_is_missing_and_what_was_trained_on(account, tmp_path):
    refused = rft("evaluate", "--dataset", "s3://data/x.jsonl", "--run-dir", tmp_path / "run")
    assert refused.returncode == 2
    assert "wanted --role, --agent, --base-model, --output, --mlflow-app too" in refused.stderr
    trained_job(account)
    warned = rft(
        "evaluate",
        "--job",
        "wordle-1",
        "--dataset",
        "s3://data/wordle/train.jsonl",
        "--dry-run",
        "--run-dir",
        tmp_path / "run",
    )
    assert "the model was trained on these very tasks" in warned.stderr


def test_the_verb_takes_everything_said_and_fails_by_its_exit_code(account, tmp_path, package):
    account.cloud.runner = FailsWith()
    done = rft(
        "evaluate",
        *("--role", account.cloud.role_arn("JobRole")),
        *("--agent", next(iter(account.cloud.runtimes))),
        *("--base-model", MODEL),
        *("--dataset", "s3://data/wordle/val.jsonl"),
        *("--output", "s3://data/wordle/out"),
        *("--mlflow-app", account.app.arn),
        *("--package", f"step-50={package}"),
        *("--success-threshold", "0"),
        "--no-base",
        "--accept-eula",
        *("--poll", "0.05"),
        *("--run-dir", tmp_path / "run"),
    )
    assert done.returncode == 1
    assert "no result: step-50, low effort, temperature 0: No sampling requests" in done.stderr
    (job,) = account.cloud.jobs.values()
    assert job.document["EvaluationConfig"]["HyperParameters"]["success_threshold"] == "0.0"
