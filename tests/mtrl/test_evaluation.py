"""Evaluations before any call: documents, names, results, intervals, the table and the picture."""

import json
from datetime import UTC, datetime

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.estimates import Interval, wilson
from rft_agent_sdk.mtrl.evaluation import (
    Evaluated,
    Setting,
    check_setting,
    evaluation_document,
    evaluation_name,
    evaluation_request,
    from_training,
    pass_ks,
    setting_of,
)
from rft_agent_sdk.mtrl.evaluation_results import (
    gains,
    read_metrics,
    refuse_mixed_efforts,
    result_of,
    table,
)
from rft_agent_sdk.mtrl.plot import plot
from tests.mtrl.cloud import a_job

RUNTIME = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/Wordle-aBcDeFgHiJ"
PACKAGE = "arn:aws:sagemaker:us-west-2:123456789012:model-package/wordle/3"
AT = datetime(2026, 11, 29, 12, 30, 5, tzinfo=UTC)


def setting(**changes):
    given = {
        "role": "arn:aws:iam::123456789012:role/JobRole",
        "agent": {"BedrockAgentCoreConfig": {"AgentRuntimeArn": RUNTIME, "Qualifier": "DEFAULT"}},
        "base_model": "arn:aws:sagemaker:us-west-2:aws:hub-content/Hub/Model/m/1.0.0",
        "dataset": "s3://data/val.jsonl",
        "output": "s3://data/out",
        "mlflow_app": "arn:aws:sagemaker:us-west-2:123456789012:mlflow-app/app",
        "experiment": "mtrl-eval-wordle",
        "hyperparameters": {"eval_group_size": 4, "pass_k_values": [1, 2, 4]},
    }
    return Setting(**{**given, **changes})


def test_a_document_has_the_names_that_the_service_takes_flat_and_as_text():
    document = evaluation_document(setting(accept_eula=True), Evaluated("base"), 1)
    assert document == {
        "AgentConfig": {"BedrockAgentCoreConfig": {"AgentRuntimeArn": RUNTIME}},
        "InputDataConfig": [
            {
                "ChannelName": "evaluation",
                "DataSource": {
                    "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/val.jsonl"}
                },
            }
        ],
        "OutputDataConfig": {
            "S3OutputPath": "s3://data/out",
            "MlflowConfig": {
                "MlflowResourceArn": "arn:aws:sagemaker:us-west-2:123456789012:mlflow-app/app",
                "MlflowExperimentName": "mtrl-eval-wordle",
                "MlflowRunName": "base-temperature-1",
            },
        },
        "EvaluationConfig": {
            "BaseModelArn": "arn:aws:sagemaker:us-west-2:aws:hub-content/Hub/Model/m/1.0.0",
            "AcceptEula": True,
            "HyperParameters": {
                "eval_group_size": "4",
                "pass_k_values": "[1, 2, 4]",
                "temperature": "1.0",
            },
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    }


def test_a_trained_model_is_named_by_its_package_and_the_rest_stays():
    base = evaluation_document(setting(), Evaluated("base"), 0)
    trained = evaluation_document(setting(), Evaluated("trained", PACKAGE), 0)
    assert trained.pop("ModelPackageConfig") == {"InputModelPackageArn": PACKAGE}
    trained["OutputDataConfig"]["MlflowConfig"]["MlflowRunName"] = "base-temperature-0"
    assert trained == base


def test_a_key_a_network_and_another_endpoint_are_passed_on():
    agent = {"BedrockAgentCoreConfig": {"AgentRuntimeArn": RUNTIME, "Qualifier": "evaluation"}}
    vpc = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    document = evaluation_document(
        setting(agent=agent, kms_key="arn:key", vpc=vpc), Evaluated("base"), 0
    )
    assert document["AgentConfig"] == agent
    assert document["OutputDataConfig"]["KmsKeyArn"] == "arn:key"
    assert document["VpcConfig"] == vpc


@pytest.mark.parametrize(
    ("changes", "temperature", "words"),
    [
        ({}, 2.5, "temperature: wanted a number from 0 up to 2"),
        ({"hyperparameters": {"sampling_max_tokens": 500}}, 0, "sampling_max_tokens: wanted"),
        ({"hyperparameters": {"max_tokens": 500}}, 0, "no hyperparameter 'max_tokens'"),
        ({"hyperparameters": {"pass_k_values": [8]}}, 0, "pass@8 needs 8 rollouts of each task"),
        ({"dataset": "val.jsonl"}, 0, "dataset: wanted an S3 URI"),
        ({"output": "s3://B"}, 0, "output: wanted an S3 URI"),
        ({"max_runtime_s": 0}, 0, "max runtime: wanted 1 to 259200 s"),
    ],
)
def test_what_the_service_would_refuse_is_refused_here_in_words(changes, temperature, words):
    with pytest.raises(UsageError) as refused:
        check_setting(setting(**changes), [0.0, temperature])
    assert words in str(refused.value)


def test_all_faults_are_told_at_once_and_a_good_setting_passes():
    with pytest.raises(UsageError, match=r"dataset: .*; output: "):
        check_setting(setting(dataset="x", output="y"), [0.0])
    with pytest.raises(UsageError, match="at least one temperature"):
        check_setting(setting(), [])
    check_setting(setting(), [0.0, 0.7, 2.0])


@pytest.mark.parametrize("prefix", ["eval", "a" * 80, "", "x" * 20 + "_" * 30])
@pytest.mark.parametrize("label", ["base", "t" * 60])
def test_a_job_s_name_fits_and_always_ends_in_its_second_and_its_token(prefix, label):
    name = evaluation_name(prefix, Evaluated(label), 0.7, AT, "0a1b")
    assert len(name) <= 63
    assert name.endswith("20261129123005-0a1b")
    assert evaluation_request(setting(), Evaluated(label), 0.7, name)["JobName"] == name
    assert name.replace("-", "").isalnum()
    assert not name.startswith("-")
    assert "--" not in name


def test_a_name_says_what_it_is():
    name = evaluation_name("eval", Evaluated("base"), 0.7, AT, "0a1b")
    assert name == "eval-base-t0-7-20261129123005-0a1b"


def test_names_of_one_second_differ():
    names = {evaluation_name("eval", Evaluated("base"), 0.7, AT) for _ in range(20)}
    assert len(names) > 15


def test_a_training_job_tells_all_but_the_dataset():
    document = {
        "AgentConfig": {"x": 1},
        "OutputDataConfig": {"S3OutputPath": "s3://data/out", "KmsKeyArn": "arn:key"},
        "TrainingConfig": {
            "BaseModelArn": "arn:base",
            "AcceptEula": True,
            "MlflowConfig": {"MlflowResourceArn": "arn:app"},
        },
    }
    assert from_training(a_job(document=document, role="arn:role")) == {
        "role": "arn:role",
        "agent": {"x": 1},
        "base_model": "arn:base",
        "accept_eula": True,
        "output": "s3://data/out",
        "kms_key": "arn:key",
        "mlflow_app": "arn:app",
        "experiment": "mtrl-eval-wordle-1",
    }


def test_a_setting_is_kept_as_json():
    assert setting_of(json.loads(json.dumps(setting().to_json()))) == setting()
    with pytest.raises(UsageError, match="wanted the setting of an evaluation"):
        setting_of({"role": "x"})


def test_pass_at_k_is_asked_for_as_far_as_a_group_goes():
    assert [pass_ks(size) for size in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def result(label="base", temperature=0.0, effort="low", pass_at_1=0.25, group_size=1, **more):
    metrics = {
        "eval/reward/mean": 0.5,
        "eval/reward/std": 2.0,
        "eval/reward/num_prompts": 64.0,
        "eval/reward/pass_at_1": pass_at_1,
        "eval/reward/pass_at_2": 0.5,
        "eval/turns/mean": 3.0,
        **more,
    }
    return result_of(
        metrics,
        label=label,
        temperature=temperature,
        effort=effort,
        agent_version="3",
        group_size=group_size,
        rollouts=64 * group_size,
    )


def plain(metrics, group_size=1, rollouts=None):
    """A result of which nothing but its metrics matters."""
    return result_of(
        metrics,
        label="base",
        temperature=0.0,
        effort="low",
        agent_version="",
        group_size=group_size,
        rollouts=rollouts,
    )


def test_intervals_are_wilsons_for_a_rate_and_the_normal_one_for_the_mean_over_tasks():
    found = result(group_size=2)
    assert found.pass_at == {1: wilson(0.25, 64), 2: wilson(0.5, 64)}
    assert isinstance(found.mean_reward, Interval)
    # 1.96 * 2 / 8
    assert found.mean_reward.high - 0.5 == pytest.approx(0.49, abs=0.0001)
    assert found.tasks == 64


def test_a_k_beyond_the_group_is_left_out_whatever_the_service_makes_of_it():
    assert list(result(group_size=1).pass_at) == [1]


def test_without_a_count_of_tasks_the_rollouts_tell_it_and_without_both_there_is_no_interval():
    metrics = {"eval/reward/mean": 0.5, "eval/reward/std": 1.0, "eval/reward/pass_at_1": 0.5}
    found = plain(metrics, 4, 512)
    assert (found.tasks, found.pass_at[1]) == (128, wilson(0.5, 128))
    found = plain(metrics, 4)
    assert (found.tasks, found.pass_at[1], found.mean_reward) == (None, 0.5, 0.5)
    assert "50.0%  " in table([found])


@pytest.mark.parametrize(
    "told",
    [
        {"eval/reward/mean": 0.5, "eval/reward/pass_at_1": 0.25},
        {"reward": {"mean": 0.5, "pass_at_1": 0.25}},
        {"eval": {"reward": {"mean": 0.5, "pass_at_1": 0.25}}, "note": "text", "flag": True},
        [{"MetricName": "mean", "Value": 0.5}, {"Name": "pass_at_1", "Value": 0.25}, {"x": 1}],
    ],
)
def test_the_service_s_numbers_are_read_in_any_form(told):
    metrics = read_metrics(told)
    found = plain(metrics)
    assert (found.mean_reward, found.pass_at) == (0.5, {1: 0.25})


def test_what_is_no_number_is_no_metric():
    assert read_metrics(None) == {}
    assert read_metrics({"a": float("nan"), "b": None, "c": "1"}) == {}


def test_a_mean_of_something_else_is_not_the_reward_s():
    found = plain({"eval/turns/mean": 3.0})
    assert found.mean_reward is None


def test_efforts_are_not_mixed_without_saying_so():
    refuse_mixed_efforts(["low", "low"], is_said=False)
    refuse_mixed_efforts(["low", "medium"], is_said=True)
    with pytest.raises(UsageError, match=r"\(low, medium\).*--across-efforts"):
        refuse_mixed_efforts(["medium", "low"], is_said=False)


def test_the_table_has_each_setting_together_with_its_effort_and_agent():
    found = [
        result("trained", 1.0, pass_at_1=0.75),
        result("base", 1.0),
        result("base", 0.0, "medium"),
    ]
    lines = table(found).splitlines()
    assert lines[0].split()[:3] == ["model", "effort", "temperature"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["trained", "low", "1"],
        ["base", "low", "1"],
        ["base", "medium", "0"],
    ]
    assert "75.0% [63.2%, 84.0%]" in lines[1]
    assert lines[1].split()[-1] == "v3"
    assert lines[4].startswith("95 % intervals over tasks")
    assert gains(found) == ["trained, low effort, temperature 1: pass@1 +50.0 points over base"]


def test_results_hold_as_json():
    told = result(group_size=2).to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["pass_at"]["2"]["value"] == 0.5


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_results_are_drawn_with_and_without_a_curve(tmp_path, ending):
    path = tmp_path / "folder" / f"evaluation.{ending}"
    plot([result(group_size=2), result("trained", group_size=2)], path, title="wordle")
    plot([result(), result("trained", 1.0, "medium", pass_at_1=1.0)], path)
    start = path.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") or b"<?xml" in start


def test_a_picture_of_nothing_or_of_no_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no result to draw"):
        plot([], tmp_path / "x.png")
    with pytest.raises(UsageError, match=r"ends in \.png"):
        plot([result()], tmp_path / "x.txt")
