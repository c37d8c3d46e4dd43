"""Hyperparameters: names, types, ranges, and which of them a job's document carries."""

import pytest

from rft_agent_sdk.mtrl.hyperparameters import (
    SETTLED,
    Rule,
    advise,
    check,
    choose,
    effective,
    published,
    read_hub,
    read_value,
    sent,
)
from rft_agent_sdk.mtrl.recipe import read_recipe

GPT_OSS = "openai-reasoning-gpt-oss-20b"
QWEN = "huggingface-vlm-qwen3-6-27b"
NOVA = "nova-textgeneration-lite-v2"
RULES = published(GPT_OSS)


def problems(values, model=GPT_OSS):
    return [finding.message for finding in check(values, published(model), "published")]


def test_the_published_defaults_hold_against_their_own_rules():
    for model in (GPT_OSS, QWEN, NOVA):
        rules = published(model)
        defaults = {name: rule.default for name, rule in rules.items()}
        assert list(check(defaults, rules, "published")) == []


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("max_steps", 0, "a whole number from 1 up to 1000"),
        ("max_steps", 1001, "a whole number from 1 up to 1000"),
        ("max_steps", 10.5, "a whole number from 1 up to 1000"),
        ("max_steps", "10", "a whole number from 1 up to 1000"),
        ("max_steps", True, "a whole number from 1 up to 1000"),
        ("learning_rate", 0.02, "a number from 0 up to 0.01"),
        ("learning_rate", "1e-5", "a number from 0 up to 0.01"),
        ("learning_rate", float("nan"), "a number from 0 up to 0.01"),
        ("sampling_max_tokens", 16384, "a whole number from 512 up to 8192"),
        ("global_batch_size", 100, "one of 32, 64, 128"),
        ("loss_fn", "dpo", "one of importance_sampling, ppo, cispo"),
        ("pass_k_values", [1, 0], "a list of whole numbers from 1"),
        ("pass_k_values", [], "a list of whole numbers from 1"),
        ("pass_k_values", "1,2", "a list of whole numbers from 1"),
    ],
)
def test_a_value_outside_its_rule_is_told_with_what_was_wanted(name, value, told):
    (message,) = problems({name: value})
    assert message == f"wanted {told} (published), got {value!r}"


def test_the_edges_of_a_range_are_inside_it():
    assert problems({"max_steps": 1, "sampling_max_tokens": 8192, "rollout_timeout": 300}) == []


def test_an_unknown_name_is_told_with_the_nearest_one():
    (finding,) = check({"learning_rat": 1e-5}, RULES, "published")
    assert finding.message == "a job has no hyperparameter 'learning_rat' (published)"
    assert finding.fix == "Did you mean 'learning_rate'?"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("seed", "these jobs take no seed"),
        ("max_turns", "the agent limits its own turns"),
        ("gamma", "is fixed at 1.0"),
        ("data_path", "is filled in by the service"),
    ],
)
def test_what_a_job_cannot_be_told_says_why(name, told):
    (message,) = problems({name: 1})
    assert told in message


def test_nova_takes_other_batches_and_the_rates_of_its_own():
    assert (
        problems({"global_batch_size": 8, "lora_plus_lr_ratio": 16.0, "save_every": 10}, NOVA) == []
    )
    assert problems({"global_batch_size": 8})
    assert problems({"lora_plus_lr_ratio": 16.0})


def test_a_launch_settles_a_low_learning_rate_whatever_the_model_s_default():
    chosen = choose(QWEN, {})
    assert chosen.values["learning_rate"] == 1e-5
    assert published(QWEN)["learning_rate"].default == 4e-5
    assert chosen.asked == frozenset()


def test_gpt_oss_gets_room_to_reason_before_its_first_tool_call():
    assert choose(GPT_OSS, {}).values["sampling_max_tokens"] == 8192
    assert choose(QWEN, {}).values["sampling_max_tokens"] == 4096


def test_what_somebody_asks_for_wins_and_is_remembered():
    chosen = choose(GPT_OSS, {"max_steps": 7, "max_epochs": None, "lora_rank": 16})
    assert (chosen.values["max_steps"], chosen.values["max_epochs"]) == (7, 1)
    assert chosen.asked == {"max_steps", "lora_rank"}


def test_a_default_of_ours_that_the_hub_does_not_know_is_dropped_and_a_wish_is_not():
    rules = {"max_steps": Rule("integer", 50, 1, 1000)}
    chosen = choose(GPT_OSS, {"group_size": 4}, rules)
    assert chosen.values == {"max_steps": 100, "group_size": 4}


def test_numbers_take_the_type_that_the_client_insists_on():
    chosen = choose(GPT_OSS, {"rollout_timeout": 900, "max_steps": 20.0})
    assert repr(chosen.values["rollout_timeout"]) == "900.0"
    assert repr(chosen.values["max_steps"]) == "20"


def test_a_list_becomes_text_where_the_hub_takes_text():
    hub = read_hub({"pass_k_values": {"type": "string", "default": "[1]"}})
    assert choose(GPT_OSS, {"pass_k_values": [1, 8]}, hub).values == {"pass_k_values": "[1, 8]"}


def test_only_what_differs_from_the_default_is_sent_and_as_text():
    chosen = choose(
        GPT_OSS,
        {"max_epochs": 20, "pass_k_values": [1, 8], "temperature": 1, "clip_high_threshold": 6},
    )
    assert sent(chosen, RULES) == {
        "max_epochs": "20",
        "sampling_max_tokens": "8192",
        "pass_k_values": "[1, 8]",
        "clip_high_threshold": "6.0",
    }


def test_a_changed_default_of_the_hub_does_not_change_a_settled_run():
    hub = read_hub({"max_steps": {"type": "integer", "default": 50, "min": 1, "max": 1000}})
    chosen = choose(GPT_OSS, {}, hub)
    assert sent(chosen, hub) == {"max_steps": "100"}
    assert effective(chosen, hub) == {"max_steps": 100}


def test_every_settled_name_is_a_hyperparameter_of_every_model():
    for model in (GPT_OSS, QWEN, NOVA):
        assert set(SETTLED) <= set(published(model))


def test_the_hub_s_file_becomes_rules():
    rules = read_hub(
        {
            "group_size": {"type": "integer", "default": 8, "min": 2, "max": 32},
            "loss_fn": {"type": "string", "default": "ppo", "enum": ["ppo", "cispo"]},
            "pass_k_values": {"type": "array", "default": [1]},
            "name": "plain",
        }
    )
    assert rules["group_size"] == Rule("integer", 8, 2, 32)
    assert rules["loss_fn"] == Rule("string", "ppo", choices=("ppo", "cispo"))
    assert rules["pass_k_values"] == Rule("array", [1])
    assert rules["name"].default == "plain"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_steps", "7", 7),
        ("learning_rate", "1e-5", 1e-5),
        ("pass_k_values", "[1, 8]", [1, 8]),
        ("loss_fn", "cispo", "cispo"),
        ("max_steps", "seven", "seven"),
        ("pass_k_values", "1", "1"),
        ("unheard_of", "3", "3"),
    ],
)
def test_text_is_read_in_the_type_of_its_hyperparameter(name, text, value):
    assert read_value(name, text, RULES) == value


def test_a_high_learning_rate_is_allowed_and_warned_about():
    assert [finding.id for finding in advise({"learning_rate": 1e-4})] == ["learning-rate-high"]
    assert list(advise({"learning_rate": 4e-5})) == []


def test_a_published_recipe_s_sections_become_hyperparameters():
    recipe = {
        "display_name": "Agentic RFT",
        "run": {"name": "mine", "model_type": "mtrl"},
        "batch": {"group_size": 16, "training_batch_size": 64, "val_group_size": 1},
        "schedule": {"epochs": 20, "max_steps": 50, "val_at_start": True},
        "sampling_params": {"max_tokens": 8192, "top_p": "{{sampling_top_p}}"},
        "val_sampling_params": {"max_tokens": 4096},
        "model": {"weight_decay": 0.1, "lora_rank": 16, "max_sequence_length": 65536},
        "rollout": {"timeout": 900.0, "rollout_tps": 5},
        "val_metrics_config": {"pass_k_values": [1, 8]},
    }
    values, findings = read_recipe(recipe, RULES, "recipe.yaml")
    assert findings == []
    assert values == {
        "group_size": 16,
        "global_batch_size": 64,
        "max_epochs": 20,
        "max_steps": 50,
        "sampling_max_tokens": 8192,
        "adam_weight_decay": 0.1,
        "lora_rank": 16,
        "rollout_timeout": 900.0,
        "pass_k_values": [1, 8],
    }


def test_names_of_hyperparameters_are_taken_flat_and_under_the_client_s_section():
    values, findings = read_recipe(
        {"max_steps": 7, "training_config": {"loss_fn": "cispo"}}, RULES, "overrides"
    )
    assert (values, findings) == ({"max_steps": 7, "loss_fn": "cispo"}, [])


@pytest.mark.parametrize(
    ("recipe", "where", "told"),
    [
        ({"rl": {"gamma": 0.9}}, "r: rl.gamma", "is fixed at 1.0, got 0.9"),
        ({"model": {"max_sequence_length": 131072}}, "r: model.max_sequence_length", "is fixed at"),
        ({"data": {"max_steps": 7}}, "r: data.max_steps", "is no hyperparameter of a job"),
        (
            {"eval_sampling_param": {"top_p": 1}},
            "r: eval_sampling_param.top_p",
            "no hyperparameter",
        ),
        ({"runs": 1}, "r: runs", "no hyperparameter"),
    ],
)
def test_what_a_recipe_cannot_set_is_told_with_its_place(recipe, where, told):
    values, (finding,) = read_recipe(recipe, RULES, "r")
    assert values == {}
    assert finding.where == where
    assert told in finding.message
