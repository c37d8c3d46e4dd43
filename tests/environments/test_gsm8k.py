import json
import re
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.gsm8k import GSM8K, GSM8KRewards, environment
from environments.gsm8k.calculator import LONGEST, evaluate
from environments.gsm8k.data.build_sample import SAMPLE
from environments.gsm8k.dataset import rows_from
from environments.gsm8k.numbers import as_number, shown
from environments.gsm8k.problems import SAMPLE_ROWS, make_problems, sample
from environments.gsm8k.task import parse_task
from environments.gsm8k.text import CALLS
from rft_agent_sdk.environment import Environment, Episode, load_environment
from rft_agent_sdk.errors import RewardError, TaskError, UsageError
from rft_agent_sdk.types import Message, Outcome

TASK = '{"prompt": "Ada has 4 bags of 6 apples. How many apples?", "answer": "24"}'


def start(task=TASK):
    return environment.start(task)


def calculate(episode, expression, **given):
    return episode.call("calculator", {"expression": expression}, **given)


def submit(episode, answer, **given):
    return episode.call("submit_answer", {"answer": answer}, **given)


def total(episode, outcome=Outcome.COMPLETED):
    return episode.reward(outcome).total


def test_the_environment_is_found_by_name():
    found = load_environment("gsm8k")
    assert found is environment
    assert isinstance(found, Environment)
    assert isinstance(start(), Episode)
    assert (found.name, found.floor) == ("gsm8k", -1.0)


def test_a_right_answer_with_the_calculator_is_the_best_play():
    episode = start()
    assert calculate(episode, "4 * 6").text == "4 * 6 = 24"
    result = submit(episode, "24")
    assert (result.text, result.is_error) == ("Your answer is 24. The problem is over.", False)
    assert episode.done
    reward = episode.reward(Outcome.COMPLETED)
    assert reward.total == 1.1
    assert {reward.components[name] for name in ("solved", "worked", "answered")} == {1.0}


def test_the_tiers_in_order():
    worked, right, wrong, no_answer, never = (start() for _ in range(5))
    calculate(worked, "4 * 6")
    submit(worked, "24")
    submit(right, "24")
    submit(wrong, "25")
    calculate(no_answer, "4 * 6")
    never.call("calculator", {})
    totals = [total(episode) for episode in (worked, right, wrong, no_answer, never)]
    assert totals == [1.1, 1.05, 0.0, -0.5, -1.0]
    assert totals[-1] == environment.floor


@pytest.mark.parametrize("expression", ["24", "4 + 6"])
def test_a_calculation_that_did_not_work_the_answer_out_earns_nothing(expression):
    episode = start()
    calculate(episode, expression)
    submit(episode, "24")
    assert total(episode) == 1.05


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_an_answer_that_was_given_counts(outcome):
    episode = start()
    calculate(episode, "4 * 6")
    assert total(episode, outcome) == -0.5


def test_the_second_answer_and_all_after_it_change_nothing():
    episode = start()
    submit(episode, "25")
    result = submit(episode, "24")
    assert result.is_error
    assert "over" in result.text
    assert total(episode) == 0.0
    assert episode.reward(Outcome.COMPLETED).components["tool_calls"] == 1


def test_calls_found_in_text_cost_a_little_in_proportion():
    episode = start()
    calculate(episode, "4 * 6", recovered=True)
    submit(episode, "24")
    assert total(episode) == pytest.approx(1.1 - 0.0025)


def test_the_last_call_ends_the_play_without_an_answer():
    episode = start()
    for _ in range(CALLS - 1):
        assert not episode.done
        calculate(episode, "1 + 1")
    assert calculate(episode, "1 + 1").text.endswith("No calls are left. The problem is over.")
    assert episode.done
    assert submit(episode, "24").is_error
    assert total(episode) == -0.5


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("submit_answer", {"answer": "about 24"}),
        ("submit_answer", {"answer": "24 apples"}),
        ("submit_answer", {"answer": None}),
        ("submit_answer", {"answer": True}),
        ("submit_answer", {"answer": [24]}),
        ("submit_answer", {"answer": "24", "unit": "apples"}),
        ("submit_answer", {"answer": float("nan")}),
        ("submit_answer", {"answer": 10**400}),
        ("submit_answer", "24"),
        ("calculator", {"expression": 24}),
        ("calculator", {"expression": "4 * apples"}),
        ("calculator", {}),
        ("think", {"thought": "24"}),
    ],
)
def test_a_malformed_call_is_answered_and_is_no_act(name, arguments):
    episode = start()
    result = episode.call(name, arguments)
    assert result.is_error
    assert not episode.acted
    assert not episode.done
    assert total(episode) == -1.0
    assert episode.reward(Outcome.COMPLETED).components["malformed"] == 1


@pytest.mark.parametrize("answer", [24, 24.0, "24", " 24. ", "$24.00", "+24"])
def test_an_answer_is_a_number_however_it_is_written(answer):
    episode = start()
    submit(episode, answer)
    assert total(episode) == 1.05


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("1,234", 1234),
        ("-1,234,567.5", Fraction(-2469135, 2)),
        (".5", Fraction(1, 2)),
        (0.1, Fraction(1, 10)),
        ("1,23", None),
        ("\u0661", None),
        ("1e3", None),
        ("4/2", None),
        ("", None),
        ("9" * 41, None),
        (float("inf"), None),
    ],
)
def test_numbers_are_exact_or_none(value, number):
    assert as_number(value) == number


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("10 - 4 - 3", "3"),
        ("2 ** 3 ** 2", "512"),
        ("-2 ^ 2", "-4"),
        ("2 ** -1", "0.5"),
        ("1 / 3", "0.333333333333"),
        ("1/3*3", "1"),
        ("0.1 + 0.2", "0.3"),
        ("$1,200 / 8", "150"),
        ("6 \u00d7 4 \u00f7 3 \u2212 1", "7"),
        ("--3", "3"),
    ],
)
def test_arithmetic_is_exact(expression, value):
    assert shown(evaluate(expression)) == value


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "a number was to come, got the end"),
        ("2 +", "a number was to come, got the end"),
        ("2 3", "an operator is missing"),
        ("2(3)", "an operator is missing"),
        ("(2", "a bracket is not closed"),
        ("2)", "nothing should follow"),
        ("1 / 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("20%", "'%' is no part of arithmetic"),
        ("__import__('os')", "'_' is no part of arithmetic"),
        ("9 ** 9 ** 9", "a power must be a whole number up to 20"),
        ("2 ** 0.5", "a power must be a whole number"),
        ("(9 ** 20) ** 20", "too large"),
        ("(" * 90 + "1" + ")" * 90, "too many brackets"),
        ("-" * 100 + "1", "too many brackets or signs"),
        ("1+" * LONGEST, f"more than {LONGEST}"),
        ("1,2 + 3", "'1,2' is no number"),
    ],
)
def test_what_is_no_arithmetic_is_refused(expression, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        evaluate(expression)


@given(st.text(st.sampled_from("0123456789.,+-*/()^ $"), max_size=LONGEST))
def test_any_expression_ends_soon_in_a_number_or_a_refusal(expression):
    before = time.perf_counter()
    try:
        assert isinstance(evaluate(expression), Fraction)
    except UsageError as error:
        assert str(error)  # noqa: PT017 - either end is fine
    assert time.perf_counter() - before < 1


@given(st.integers(-999, 999), st.sampled_from("+-*"), st.integers(1, 999), st.integers(1, 99))
def test_the_calculator_agrees_with_fractions(a, sign, b, c):
    joined = {"+": a + b, "-": a - b, "*": a * b}[sign]
    assert evaluate(f"({a} {sign} {b}) / {c}") == Fraction(joined, c)


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "How many?", "answer": "24"},
        {"question": "How many?", "answer": "4 * 6 = <<4*6=24>>24\n#### 24"},
        {"question": "How many?", "answer": 24, "subject": "apples"},
    ],
)
def test_every_form_of_a_task_is_read(fields):
    task = parse_task(json.dumps(fields))
    assert (task.prompt, task.answer) == ("How many?", Fraction(24))
    assert "24" not in repr(task)
    assert parse_task(task.dump()) == task


@pytest.mark.parametrize(
    "text",
    [
        "How many? 24",
        "[24]",
        '{"answer": "24"}',
        '{"prompt": "", "answer": "24"}',
        '{"prompt": "How many?"}',
        '{"prompt": "How many?", "answer": "24 apples"}',
        '{"prompt": "How many?", "answer": "24 #### none"}',
        '{"prompt": "How many?", "answer": [24]}',
        '{"prompt": "How many?", "answer": "24", "id": 24}',
    ],
)
def test_a_string_that_is_no_task_is_refused_and_its_answer_not_told(text):
    with pytest.raises(TaskError) as caught:
        start(text)
    assert "24" not in str(caught.value).replace("of 24 characters", "")


def test_the_policy_is_never_shown_the_answer():
    episode = start('{"prompt": "How many?", "answer": "#### 98765"}')
    told = [episode.prompt, episode.system_prompt, episode.retry_prompt]
    told += [calculate(episode, "1 + 1").text, submit(episode, "7").text, submit(episode, "8").text]
    assert "98765" not in " ".join(told)


def test_constants_that_could_turn_the_order_are_refused():
    with pytest.raises(RewardError):
        GSM8KRewards(wrong=1.05)
    assert GSM8K(GSM8KRewards(never_played=-2.0)).floor == -2.0


def test_the_sample_is_what_the_templates_make_and_every_answer_is_its_last_step():
    text = SAMPLE.read_text("utf-8")
    assert text == sample()
    records = [json.loads(line) for line in text.splitlines()]
    assert len({record["question"] for record in records}) == SAMPLE_ROWS == 40
    rows = rows_from([("a row", record) for record in records], "sample")
    assert json.loads(rows[3]["prompt"])["id"] == "sample_0003"
    for record, row in zip(records, rows, strict=True):
        episode = start(row["prompt"])
        for expression, value in re.findall(r"([\d(][-+*/() \d]*) = (\d+)", record["answer"]):
            assert calculate(episode, expression).text.endswith(f" = {value}")
        submit(episode, record["answer"].rpartition("#### ")[2])
        assert total(episode) == 1.1


def test_made_splits_share_no_problem_whatever_the_seeds():
    train = {task for seed in range(3) for task in environment.tasks("train", 300, seed)}
    validation = {task for seed in range(3) for task in environment.tasks("validation", 100, seed)}
    keys = [{environment.task_key(task) for task in tasks} for tasks in (train, validation)]
    assert keys[0] & keys[1] == set()
    assert environment.tasks("train", 9, 1) == environment.tasks("train", 9, 1)
    assert environment.tasks("train", 9, 1) != environment.tasks("train", 9, 2)
    assert environment.tasks("train", 0) == []


def test_a_split_that_is_none_and_too_many_problems_are_refused():
    with pytest.raises(UsageError, match="'train' or 'validation', got 'test'"):
        make_problems("test", 1)
    with pytest.raises(UsageError, match="give no -1 train problems"):
        make_problems("train", -1)


def test_the_same_problem_has_the_same_key_however_it_is_written():
    one, other = (
        '{"prompt": "How  many?", "answer": 1}',
        '{"question": "how MANY? ", "answer": "2"}',
    )
    assert environment.task_key(one) == environment.task_key(other)


def test_bad_records_are_all_named():
    records = [("a line 1", {"question": "q", "answer": "1"}), ("a line 2", {}), ("a line 3", 7)]
    with pytest.raises(TaskError, match=r"a line 2: .*\na line 3: "):
        rows_from(records, "a")


def test_the_random_policy_plays_to_an_end_and_is_seldom_right():
    policy = environment.policies()["random"]
    rewards = []
    for task in environment.tasks("validation", 50):
        episode = start(task)
        messages = [Message("user", episode.prompt)]
        while not episode.done:
            reply = policy(messages, episode.tools)
            (call,) = reply.tool_calls
            result = episode.call(call.name, json.loads(call.arguments))
            messages += [reply, Message("tool", result.text, tool_call_id=call.id)]
        assert not policy(messages, episode.tools).tool_calls
        rewards.append(episode.reward(Outcome.COMPLETED))
    assert all(reward.components["tool_calls"] == 2 for reward in rewards)
    assert sum(reward.components["solved"] for reward in rewards) < 15
    assert all(reward.components["answered"] for reward in rewards)
