"""`rft mtrl launch`, `models` and `runtimes`, run as a person runs them, against a local account."""

import importlib.util
import json
import logging
import sys

import pytest

from rft_agent_sdk.cli import main
from rft_agent_sdk.twins.cloud import LocalCloud, Runtime
from tests.mtrl.launch_parts import (
    ACCOUNT,
    AGENT,
    APP,
    BUCKET,
    MODEL,
    ROLE,
    RUNTIME,
    changed,
    environment,
    furnish,
    write_rows,
)

LOGGERS = ("botocore", "httpcore", "httpx", "openai", "sagemaker", "strands", "urllib3", "uvicorn")


@pytest.fixture(scope="module")
def served():
    with LocalCloud() as cloud:
        yield cloud


@pytest.fixture
def cloud(served, monkeypatch):
    environment(monkeypatch, served)
    furnish(served)
    return served


@pytest.fixture
def rft(capsys, monkeypatch, tmp_path):
    """Run the command line in this process; returns its exit code, and standard output and error."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    levels = {name: logging.getLogger(name).level for name in LOGGERS}

    def rft(*args):
        with pytest.raises(SystemExit) as stopped:
            main([str(arg) for arg in args])
        printed = capsys.readouterr()
        return stopped.value.code, printed.out, printed.err

    yield rft
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def options(tmp_path):
    """The options of a launch that works."""
    return {
        "--model": MODEL,
        "--agent": AGENT,
        "--role": ROLE,
        "--accept-eula": None,
        "--dataset": write_rows(tmp_path / "train.jsonl", 1280),
        "--validation-dataset": write_rows(tmp_path / "val.jsonl", 3, first=5),
        "--s3-output": f"s3://{BUCKET}/out",
        "--mlflow-app": APP,
        "--worst-solve": 1.005,
    }


def args(options, *more, **changes):
    given = {**options, **{f"--{name.replace('_', '-')}": value for name, value in changes.items()}}
    flat = [
        part
        for name, value in given.items()
        for part in ([name] if value is None else [name, value])
    ]
    return ["mtrl", "launch", *flat, *more]


def test_a_dry_run_changes_nothing_anywhere(rft, cloud, options, tmp_path):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, told, noted = rft(*args(options, "--dry-run"))
    assert code == 0
    assert noted == ""
    assert changed(cloud) == []
    assert cloud.jobs == {}
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert "steps: min(max_steps 100, 1 epochs x 1280 rows / 128) = 10" in told
    assert "would be made:\n  model package group openai-reasoning-gpt-oss-20b-mtrl-mpg\n" in told
    assert "in all: about $" in told
    request = json.loads(told[told.index("{\n") :])
    assert request["RoleArn"] == ROLE
    assert request["JobConfigDocument"]["TrainingConfig"]["AcceptEula"] is True


def test_a_dry_run_tells_what_is_there_already(rft, cloud, options):
    cloud.make_model_package_group(f"{MODEL}-mtrl-mpg")
    cloud.make_model_package_group(f"{MODEL}-mtrl-checkpoint-mpg")
    cloud.buckets[BUCKET]["out/earlier"] = b"x"
    _, told, _ = rft(*args(options, "--dry-run", dataset=f"s3://{BUCKET}/out/earlier", rows=1280, validation_dataset=f"s3://{BUCKET}/out/"))  # fmt: skip
    assert "would be made:\n  the job\n" in told


def test_offline_makes_no_call_at_all(rft, cloud, options):
    code, told, _ = rft(*args(options, "--offline"))
    assert code == 0
    assert told.startswith("plan:\n")
    assert cloud.calls == []


def test_all_that_is_wrong_is_told_at_once_before_any_call(rft, cloud, options, tmp_path):
    rows = tmp_path / "bad.jsonl"
    rows.write_text('{"prompt": "ok"}\n\n{"prompt": 5}\n{"id": "x"}\n{"prompt": oops}\n')
    code, told, noted = rft(
        *args(options, dataset=rows, agent=AGENT.replace("west-2", "east-1"), job_name="a" * 60, region="us-west-2", max_steps=2000, worst_solve=0.9),
        "--dry-run",
    )  # fmt: skip
    assert code == 2
    assert told == ""
    errors = [line for line in noted.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == [
        "agent",
        "job_name",
        "hyperparameters.max_steps",
        "success_threshold",
        f"{rows} line 3",
        f"{rows} line 4",
        f"{rows} line 5",
        "dataset",
    ]
    assert noted.endswith("rft: not launched: 8 problems, told above, before any call to AWS\n")
    assert cloud.calls == []


def test_an_option_that_is_no_number_hides_nothing_else(rft, cloud, options):
    code, _, noted = rft(
        *args(options, learning_rate="abc", group_size="8.5", max_turns="0", role="x", worst_solve=0.9),
        *("--hyperparameter", "lora_rank=true", "--hyperparameter", "pass_k_values={a: 1}"),
        *("--agent-budget-s", "700", "--dry-run"),
    )  # fmt: skip
    assert code == 2
    errors = [line for line in noted.splitlines() if line.startswith("error: ")]
    assert [line.split(": ")[1] for line in errors] == [
        "learning_rate",
        "group_size",
        "max_turns",
        "role",
        "hyperparameters.lora_rank",
        "hyperparameters.pass_k_values",
        "agent_budget_s",
        "success_threshold",
    ]
    assert cloud.calls == []


def test_too_few_rows_are_told_beside_a_wrong_hyperparameter(rft, options, tmp_path):
    few = write_rows(tmp_path / "few.jsonl", 5)
    code, _, noted = rft(*args(options, "--offline", learning_rate=5, dataset=few))
    assert code == 2
    assert "hyperparameters.learning_rate: wanted a number" in noted
    assert "dataset: wanted at least one batch of 128 rows, got 5" in noted


def test_what_is_wrong_with_an_agent_is_told_once(rft, options):
    _, _, noted = rft(*args(options, "--offline", agent="x"))
    assert "error: agent: wanted arn:aws:bedrock-agentcore:" in noted


def test_prices_of_other_models_are_told_and_a_model_has_several_names(rft, options, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("openai/gpt-oss-20b: {prefill: 9, sample: 9, train: 9}\n")
    _, told, noted = rft(*args(options, "--offline", prices=prices))
    assert "prefill at $9" in told
    assert noted == ""
    prices.write_text("openai/gpt-oss-2ob: {prefill: 9, sample: 9, train: 9}\n")
    code, _, noted = rft(*args(options, "--offline", prices=prices))
    assert code == 0
    assert f"warning: prices: the file has no prices of '{MODEL}', but of" in noted


def test_a_launch_in_another_region_than_the_agent_s_uploads_and_creates_nothing(
    rft, cloud, options
):
    code, _, noted = rft(*args(options, "--yes", "--dry-run", region="us-east-1"))
    assert code == 2
    assert "is in 'us-west-2' but the job's region is 'us-east-1'" in noted
    assert cloud.calls == []


def test_without_a_region_the_environment_s_is_taken_and_else_the_agent_s(
    rft, options, monkeypatch
):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert rft(*args(options, "--offline"))[0] == 0
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    code, _, noted = rft(*args(options, "--offline"))
    assert code == 2
    assert "the job's region is 'us-east-1'" in noted


def test_what_aws_says_against_it_is_told_before_anything_was_changed(rft, cloud, options):
    cloud.runtimes[RUNTIME] = Runtime(name="Wordle", status="UPDATING")
    cloud.mlflow_apps.clear()
    code, _, noted = rft(*args(options, "--dry-run"))
    assert code == 2
    assert "it is UPDATING" in noted
    assert "there is no MLflow app" in noted
    assert "2 problems, told above, before anything was changed" in noted


def test_a_deployed_budget_that_the_service_would_not_wait_for_is_refused(rft, cloud, options):
    variables = {"ROLLOUT_BUDGET_SECONDS": "700"}
    cloud.runtimes[RUNTIME] = Runtime(name="Wordle", environment=variables)
    code, _, noted = rft(*args(options, "--dry-run"))
    assert code == 2
    assert "allows itself 700 s (ROLLOUT_BUDGET_SECONDS in the deployed runtime)" in noted
    assert rft(*args(options, "--dry-run", rollout_timeout=900))[0] == 0


def test_the_environment_reads_every_row_and_tells_its_worst_solve(rft, cloud, options, tmp_path):
    del options["--worst-solve"]
    code, _, noted = rft(*args(options, "--offline", environment="wordle", success_threshold=1.2))
    assert code == 2
    assert "the worst solve pays 1.005, below the success_threshold of 1.2" in noted
    rows = tmp_path / "bad.jsonl"
    rows.write_text('{"prompt": "Guess the word"}\n')
    code, _, noted = rft(*args(options, "--offline", environment="wordle", dataset=rows))
    assert code == 2
    assert f"error: {rows} line 1: " in noted


def test_splits_that_share_tasks_are_warned_about(rft, options, tmp_path):
    held_out = write_rows(tmp_path / "same.jsonl", 3)
    code, _, noted = rft(*args(options, "--offline", validation_dataset=held_out))
    assert code == 0
    assert "warning: validation_dataset: 3 of its tasks are trained on, too" in noted


def test_lines_end_at_a_line_feed_alone_and_a_mark_at_the_start_is_warned_about(
    rft, options, tmp_path
):
    rows = tmp_path / "train.jsonl"
    line = '{"prompt": "a\u2028b\u0085c"}\r\n'
    rows.write_bytes(b"\xef\xbb\xbf" + line.encode() * 128)
    code, told, noted = rft(*args(options, "--offline", dataset=rows))
    assert code == 0
    assert "rows: 128, 128 a step" in told
    assert "it begins with a byte order mark" in noted


def test_a_file_of_rows_in_s3_is_read_like_one_here(rft, cloud, options):
    uri = f"s3://{BUCKET}/rows/train.jsonl"
    cloud.buckets[BUCKET]["rows/train.jsonl"] = b'{"prompt": "x"}\n' * 128 + b'{"id": 1}\n'
    code, _, noted = rft(*args(options, "--dry-run", dataset=uri))
    assert code == 2
    assert f"error: {uri} line 129: it has no column 'prompt'" in noted
    cloud.buckets[BUCKET]["rows/train.jsonl"] = b'{"prompt": "x"}\n' * 1280
    code, told, _ = rft(*args(options, "--dry-run", dataset=uri))
    assert code == 0
    assert f'"S3Uri": "{uri}"' in told


def test_a_config_file_says_the_same_and_options_win(rft, options, tmp_path):
    config = tmp_path / "launch.yaml"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("schedule: {epochs: 3}\nmodel: {learning_rate: 2e-5}\n")
    config.write_text(
        f"model: openai/gpt-oss-20b\nagent: {AGENT}\nrole: {ROLE}\naccept_eula: true\n"
        f"dataset: {options['--dataset']}\ns3_output: s3://{BUCKET}/out\nmlflow_app: {APP}\n"
        f"recipe: {recipe}\nmax_steps: 50\nhyperparameters: {{lora_rank: 16}}\ntags: {{a: b}}\n"
    )
    code, told, _ = rft(
        "mtrl", "launch", "--config", config, "--offline", "--json", "--max-steps", 7
    )
    assert code == 0
    plan = json.loads(told)["plan"]
    assert (plan["epochs"], plan["max_steps"]) == (3, 7)


def test_hyperparameters_overrides_and_tags_are_given_one_by_one(rft, cloud, options):
    code, told, _ = rft(
        *args(options, "--dry-run", "--json"),
        *("--hyperparameter", "loss_fn=cispo", "--hyperparameter", "pass_k_values=[1, 8]"),
        *("--override", "schedule.epochs=2", "--tag", "team=rl", "--tag", "cost=a=b"),
    )
    assert code == 0
    request = json.loads(told)["request"]
    assert request["JobConfigDocument"]["TrainingConfig"]["HyperParameters"] == {
        "sampling_max_tokens": "8192",
        "max_epochs": "2",
        "loss_fn": "cispo",
        "pass_k_values": "[1, 8]",
    }
    assert {"Key": "cost", "Value": "a=b"} in request["Tags"]


@pytest.mark.parametrize("text", ["loss_fn", "=cispo"])
def test_an_option_that_is_no_pair_is_refused(rft, options, text):
    code, _, noted = rft(*args(options, "--offline"), "--hyperparameter", text)
    assert (code, noted) == (2, f"rft: --hyperparameter: wanted NAME=VALUE, got {text!r}\n")


def test_prices_of_one_s_own_make_the_estimate(rft, options, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        f"{MODEL}: {{prefill: 0, sample: 0, train: 1e-9}}\nagentcore_per_rollout: 0.5\n"
    )
    code, told, _ = rft(*args(options, "--offline", "--json", prices=prices))
    assert code == 0
    found = json.loads(told)
    assert found["estimate"]["usd"] == pytest.approx(found["plan"]["rollouts"] * 0.5)


def test_a_refusal_is_told_as_json_too(rft, options):
    code, told, _ = rft(*args(options, "--offline", "--json", max_steps=0))
    assert code == 2
    (finding,) = json.loads(told)["findings"]
    assert (finding["severity"], finding["where"]) == ("error", "hyperparameters.max_steps")


def test_an_unknown_price_is_said_to_be_unknown(rft, options):
    code, told, _ = rft(*args(options, "--offline", model="huggingface-vlm-qwen3-6-27b"))
    assert code == 0
    assert "in all: an unknown price for its tokens, and about $8 of AgentCore" in told


@pytest.mark.skipif(
    importlib.util.find_spec("sagemaker") is not None, reason="the client is installed here"
)
def test_a_launch_without_the_client_names_what_to_install_before_any_call(rft, cloud, options):
    code, _, noted = rft(*args(options, "--yes"))
    assert code == 2
    assert "pip install 'rft-agent-sdk[sagemaker]'" in noted
    assert cloud.calls == []


def test_models_shows_the_table_and_what_the_hub_offers(rft, cloud):
    code, told, _ = rft("mtrl", "models")
    assert code == 0
    assert "published, 2026-" in told
    assert (
        "  openai-reasoning-gpt-oss-20b: us-east-1, us-west-2 (also openai/gpt-oss-20b)\n" in told
    )
    _, told, _ = rft("mtrl", "models", "--json")
    assert json.loads(told)["hub"] == sorted(cloud.hub.models)


def test_models_tells_the_published_ones_that_the_hub_lacks(rft, monkeypatch):
    with LocalCloud(region="us-east-1") as cloud:
        environment(monkeypatch, cloud)
        _, told, _ = rft("mtrl", "models")
    assert "huggingface-vlm-qwen3-6-27b: us-west-2 (also Qwen/Qwen3.6-27B); not in the hub" in told


def test_models_needs_no_account_for_the_table(rft):
    code, told, _ = rft("mtrl", "models", "--offline")
    assert code == 0
    assert told.count("us-west-2") == 4


def test_runtimes_lists_ids_states_and_arns(rft, cloud):
    cloud.runtimes["Other-0123456789"] = Runtime(name="Other", status="UPDATING")
    code, told, _ = rft("mtrl", "runtimes")
    assert code == 0
    assert told.splitlines() == [
        "Other-0123456789  UPDATING  version 1",
        f"  arn:aws:bedrock-agentcore:us-west-2:{ACCOUNT}:runtime/Other-0123456789",
        f"{RUNTIME}  READY  version 1",
        f"  {AGENT}",
    ]
    _, told, _ = rft("mtrl", "runtimes", "--json")
    assert [one["runtime_id"] for one in json.loads(told)] == ["Other-0123456789", RUNTIME]


def test_runtimes_says_where_there_are_none(rft, cloud):
    cloud.runtimes.clear()
    code, told, noted = rft("mtrl", "runtimes")
    assert (code, told) == (0, "")
    assert "there are no runtimes in us-west-2" in noted


def test_an_environment_that_breaks_on_a_row_is_told_of_that_row(
    rft, tmp_path, monkeypatch, options
):
    (tmp_path / "breaks.py").write_text(
        "from rft_agent_sdk import Environment\n"
        "class Breaks(Environment):\n"
        "    name, floor = 'breaks', -1.0\n"
        "    __slots__ = ()\n"
        "    def start(self, task):\n"
        "        raise KeyError(task)\n"
        "environment = Breaks()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code, _, noted = rft(*args(options, "--offline", "--environment", "breaks:environment"))
    assert code == 2
    assert "the environment failed on it: KeyError" in noted
