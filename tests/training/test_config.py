import dataclasses
import subprocess
import sys

import pytest
import yaml

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.config import EXAMPLE, Config, example, load_config, read_override
from rft_agent_sdk.training.config_changes import changes
from rft_agent_sdk.training.engines.base import AdamParams
from rft_agent_sdk.training.health import FINDINGS

REQUIRED = {
    "role_arn": "arn:aws:iam::123456789012:role/Training",
    "base_model_arn": "arn:aws:sagemaker:us-east-1:aws:hub-content/SageMakerPublicHub/Model/m",
    "s3_output_path": "s3://bucket/prefix",
    "model_package_group_arn": "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/g",
    "agent_runtime_arn": "arn:aws:bedrock-agentcore:us-east-1:123456789012:runtime/A-aBcDeFgHiJ",
    "dataset_path": "train.jsonl",
}
SPEC = {
    "region": "us-east-1",
    "lora_rank": 32,
    "lora_alpha": 64,
    "resume_from_model_package": "",
    "batch_size": 32,
    "responses_per_prompt": 4,
    "learning_rate": 1.0e-5,
    "max_context_tokens": 32768,
    "max_new_tokens": 8192,
    "temperature": 1.0,
    "epochs": 1,
    "loss": "ppo",
    "max_prompts": 0,
    "eval_every": 10,
    "eval_max_prompts": 0,
    "eval_temperature": 0.0,
    "gateway_port": 0,
    "history_mode": "tree",
    "chat_template_kwargs": {},
    "save_every": -1,
    "save_weights_at_end": False,
    "train_op_timeout": 600.0,
    "max_rollout_time": 1800.0,
    "acr_tps_limit": 5,
    "wandb_project": "",
    "wandb_run_name": "",
    "rollout_log_path": "",
}
"""The documented keys and their defaults."""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "config.yaml"
        path.write_text(text if isinstance(text, str) else yaml.safe_dump(text), "utf-8")
        return path

    return write


def config(**values):
    return Config.model_validate({**REQUIRED, **values})


def test_the_required_keys_are_enough_and_the_rest_has_the_documented_defaults(write):
    loaded = load_config(write(REQUIRED))
    assert {key: getattr(loaded, key) for key in SPEC} == SPEC
    assert (loaded.failed_rollout, loaded.failure_rate_limit, loaded.rollout_retries) == (
        "drop",
        0.2,
        1,
    )
    assert (loaded.clip_low, loaded.clip_high, loaded.advantage) == (0.8, 1.2, "grpo")


def test_the_optimizer_has_every_parameter():
    assert config(learning_rate=2e-5).adam == AdamParams(2e-5, 0.9, 0.95, 1e-8, 0.0, 1.0)
    assert all(value is not None for value in dataclasses.astuple(config().adam))


def test_all_missing_keys_are_named_at_once(write):
    with pytest.raises(UsageError) as caught:
        load_config(write("batch_size: 8\nrole_arn: ''\n"))
    keys = [key for key in REQUIRED if key != "agent_runtime_arn"]
    assert all(key in str(caught.value) for key in keys)
    assert "agent_runtime_arn (or agent_url)" in str(caught.value)
    assert "config.yaml" in str(caught.value)


def test_the_example_as_it_is_lacks_just_the_required_keys():
    with pytest.raises(UsageError, match="needs 1 corrections") as caught:
        load_config(EXAMPLE)
    assert "missing, and required: role_arn, base_model_arn" in str(caught.value)
    assert load_config(EXAMPLE, REQUIRED) == config()


def test_the_example_is_what_the_record_makes():
    assert EXAMPLE.read_text("utf-8") == example()
    assert list(yaml.safe_load(example())) == list(Config.model_fields)


def test_missing_unknown_and_wrong_keys_are_told_together(write):
    values = {**REQUIRED, "batchsize": 1, "epochs": "2", "loss": "dpo", "clip_high": 0.9}
    del values["dataset_path"]
    with pytest.raises(UsageError) as caught:
        load_config(write(values))
    text = str(caught.value)
    assert "needs 5 corrections" in text
    assert "unknown key 'batchsize'; did you mean 'batch_size'?" in text
    assert "epochs: wanted a valid integer, got '2'" in text
    assert "loss: wanted 'ppo', 'importance_sampling' or 'cispo', got 'dpo'" in text
    assert "clip_high: wanted greater than or equal to 1, got 0.9" in text
    assert "missing, and required: dataset_path" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lora_rank", True),
        ("epochs", 1.0),
        ("save_weights_at_end", "false"),
        ("temperature", "1.0"),
        ("temperature", 0),
        ("learning_rate", float("nan")),
        ("max_rollout_time", float("inf")),
        ("responses_per_prompt", 1),
        ("gateway_port", 65536),
        ("save_every", 0),
        ("save_every", -2),
        ("max_new_tokens", 511),
        ("max_new_tokens", 32768),
        ("chat_template_kwargs", "enable_thinking"),
        ("s3_output_path", "bucket/prefix"),
        ("region", "us-west"),
        ("base_model_arn", "arn:aws:sagemaker:us-west-2:aws:hub-content/Hub/Model/m"),
        (
            "resume_from_model_package",
            "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/g",
        ),
        ("role_arn", "arn:aws:iam::12345678901:role/Training"),
        (
            "agent_runtime_arn",
            "arn:aws:bedrock-agentcore::us-west-2:123456789012:runtime/AGENTID",
        ),
        (
            "agent_runtime_arn",
            "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/A-a/runtime-endpoint/DEFAULT",
        ),
        ("agent_url", "127.0.0.1:8080"),
    ],
)
def test_a_value_outside_its_limits_is_refused_by_name(write, key, value):
    with pytest.raises(UsageError, match=rf"needs 1 corrections:\n  {key}: wanted .*got"):
        load_config(write(REQUIRED), {key: value})


def test_an_agent_is_named_by_exactly_one_of_arn_and_address(write):
    with pytest.raises(UsageError, match="exactly one of the two, got both"):
        load_config(write({**REQUIRED, "agent_url": "http://127.0.0.1:8080"}))
    loaded = load_config(
        write(REQUIRED), {"agent_runtime_arn": "", "agent_url": "http://127.0.0.1:1"}
    )
    assert loaded.agent_url == "http://127.0.0.1:1"


def test_the_local_engine_needs_a_model_and_no_account(write):
    values = {"engine": "local", "agent_url": "http://127.0.0.1:1", "dataset_path": "t.jsonl"}
    with pytest.raises(UsageError, match=r"missing, and required: base_model$"):
        load_config(write(values))
    loaded = load_config(write({**values, "base_model": "tiny", "max_new_tokens": 16}))
    assert loaded.base_model == "tiny"


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", "1E-5", "0.00001", ".1e-4"])
def test_numbers_are_read_as_everybody_writes_them(write, text):
    loaded = load_config(
        write(REQUIRED).with_name("config.yaml"), dict([read_override(f"learning_rate={text}")])
    )
    assert loaded.learning_rate == 1e-5


def test_overrides_win_and_are_read_as_yaml(write):
    pairs = ["batch_size=2", "chat_template_kwargs={enable_thinking: false}", "wandb_project=a=b"]
    loaded = load_config(write({**REQUIRED, "batch_size": 8}), dict(map(read_override, pairs)))
    assert loaded.batch_size == 2
    assert loaded.chat_template_kwargs == {"enable_thinking": False}
    assert loaded.wandb_project == "a=b"
    with pytest.raises(UsageError, match="must be key=value, got 'batch_size'"):
        read_override("batch_size")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("batch_size: 1\nepochs: 2\nbatch_size: 3\n", "'batch_size' twice"),
        ("[1, 2]", "must hold one mapping of keys, got list"),
        ("a: [", "is not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "is not YAML"),
        ("1: 2", "must have words for keys, got 1"),
        ("", "missing, and required"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(write, text, told):
    with pytest.raises(UsageError, match=told) as caught:
        load_config(write(text))
    assert "config.yaml" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.yaml' cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_a_config_made_without_a_file_is_checked_too():
    with pytest.raises(ValueError, match="missing, and required: role_arn"):
        Config()
    with pytest.raises(ValueError, match="frozen"):
        config().batch_size = 3


def test_the_plan_counts_steps_and_rollouts():
    plan = config(batch_size=4, epochs=2, eval_every=2, eval_max_prompts=5).plan(10, 7)
    assert (plan.prompts, plan.steps_per_epoch, plan.steps) == (10, 3, 6)
    assert plan.rollouts == 10 * 2 * 4
    assert (plan.evaluations, plan.eval_rollouts) == (3, 15)
    assert plan.start_s == (80 + 15) / 5


@pytest.mark.parametrize(("every", "evaluations"), [(0, 1), (1, 5), (2, 3), (5, 1), (6, 1)])
def test_there_is_always_an_evaluation_at_the_end_and_never_two(every, evaluations):
    assert config(batch_size=1, eval_every=every).plan(5, 1).evaluations == evaluations


def test_a_plan_over_fewer_rows_or_none():
    assert config(max_prompts=3).plan(10).prompts == 3
    assert config(max_prompts=30).plan(10).prompts == 10
    nothing = config().plan(10)
    assert (nothing.evaluations, nothing.eval_rollouts) == (0, 0)
    assert dataclasses.astuple(config().plan(0, 9)) == (0, 0, 0, 0, 0, 0, 0.0)
    url = config(agent_runtime_arn="", agent_url="http://127.0.0.1:1")
    assert url.plan(10).start_s == 0.0


def test_reading_a_config_loads_no_engine_and_no_gateway():
    code = (
        "import sys, rft_agent_sdk.training.config\n"
        "print({'torch', 'starlette', 'boto3', 'pyarrow', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_findings_to_stop_on_are_known_ones(write):
    listed = load_config(write(REQUIRED | {"stop_on": ["no_answer", "infrastructure"]}))
    assert listed.stop_on == ("no_answer", "infrastructure")
    for wrong in (["no_anser"], "no_answer", [1], {"no_answer": 1}):
        with pytest.raises(
            UsageError, match=r"stop_on: wanted .*turns_cut_off, no_answer"
        ) as caught:
            load_config(write(REQUIRED | {"stop_on": wrong}))
        assert FINDINGS[-1] in str(caught.value)
        assert "needs 1 corrections" in str(caught.value)


def test_the_example_names_every_finding():
    about = str(Config.model_fields["stop_on"].description)
    assert ", ".join(FINDINGS) in " ".join(about.split())


def test_what_is_wrong_with_keys_together_is_told_beside_what_is_wrong_with_one(write):
    values = {**REQUIRED, "agent_url": "http://127.0.0.1:1", "save_every": 0}
    values |= {"max_new_tokens": 100, "batchsize": 1, "run_dir": None}
    with pytest.raises(UsageError) as caught:
        load_config(write(values))
    text = str(caught.value)
    assert "needs 5 corrections" in text
    assert "exactly one of the two, got both" in text
    assert "save_every: wanted -1" in text
    assert "max_new_tokens: wanted at least 512" in text
    assert "unknown key 'batchsize'" in text
    assert "run_dir: wanted a value, got none: leave the key out for its default, ''" in text


def test_nothing_follows_from_a_value_that_is_wrong_by_itself(write):
    values = {**REQUIRED, "engine": "sagemakr", "region": 1, "max_context_tokens": "8", "epochs": 0}
    with pytest.raises(UsageError) as caught:
        load_config(write(values))
    assert "needs 4 corrections" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "form"),
    [
        ("role_arn", "arn:aws:iam::123456789012:role/NAME"),
        ("base_model_arn", "hub-content/HUB/Model/NAME"),
        ("agent_runtime_arn", ":runtime/ID"),
        ("resume_from_model_package", ":model-package/GROUP/VERSION"),
        ("s3_output_path", "s3://BUCKET/PREFIX"),
        ("region", "us-west-2"),
    ],
)
def test_the_form_that_is_wanted_is_shown_by_an_example(write, key, form):
    with pytest.raises(UsageError, match=form) as caught:
        load_config(write(REQUIRED), {key: "nonsense"})
    assert "match pattern" not in str(caught.value)


def test_an_override_without_a_value_says_how_to_write_an_empty_one():
    with pytest.raises(UsageError, match=r"for an empty text write base_model='\"\"'"):
        read_override("base_model=")
    assert read_override('base_model=""') == ("base_model", "")


def test_a_resumed_run_keeps_its_model_and_may_change_the_rest():
    old = config(run_dir="a").model_dump(mode="json")
    assert changes(old, config(run_dir="b").model_dump(mode="json")) == []
    assert changes({}, old) == []
    further = config(epochs=2, loss="cispo").model_dump(mode="json")
    assert changes(old, further) == ["epochs: was 1, is 2", "loss: was 'ppo', is 'cispo'"]
    other = config(lora_rank=8, seed=1, loss="cispo").model_dump(mode="json")
    with pytest.raises(
        UsageError, match="lora_rank: was 32, is 8\n  seed: was 42, is 1\n"
    ) as caught:
        changes(old, other)
    assert "loss" not in str(caught.value)
