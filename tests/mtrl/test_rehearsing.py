"""A whole job at a local AWS against served agents: what completes, and each way to fail with its cause and fix."""

import asyncio
import itertools
import json
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from bedrock_agentcore import BedrockAgentCoreApp
from starlette.responses import HTMLResponse, JSONResponse

from rft_agent_sdk import Rollout, load_environment, play, rft_handler
from rft_agent_sdk.cli.mtrl._rehearsal_agent import only_these_aws_variables, without_proxy
from rft_agent_sdk.cli.mtrl._rehearsal_policy import rehearsal_policy
from rft_agent_sdk.cli.mtrl._rehearsal_rows import check_rows
from rft_agent_sdk.cli.mtrl._rehearsal_settings import Settings, launch_settings, prepare
from rft_agent_sdk.cli.mtrl._rehearsing import rehearse
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway import Policy, PolicyRequest
from rft_agent_sdk.mtrl.findings import Severity
from rft_agent_sdk.mtrl.rehearsal import FailureReason, Status
from rft_agent_sdk.mtrl.rehearsal_verdict import Verdict
from rft_agent_sdk.types import Message, SamplingParams
from tests.gateway.serve import mint
from tests.mtrl.rehearsal_agents import plain_agent, plays_well
from tests.servers import ScriptedServer, completion, serving

HERE = ["127.0.0.1"]
WORDLE = load_environment("wordle")


@pytest.fixture
def at(tmp_path):
    """Rehearse against an ASGI app, or whatever the settings name."""

    def run(app=None, **settings):
        lines: list[str] = []
        few = {"steps": 1, "batch": 2, "group": 2, "validation_rows": 0}
        chosen = {**few, "speed": 20.0, "silence_s": 0.4, **settings}
        hyperparameters = {"rollout_max_retries": "1", **chosen.pop("hyperparameters", {})}
        chosen["hyperparameters"] = hyperparameters
        run_dir = tmp_path / "run"
        if app is None:
            return rehearse(Settings(run_dir, **{"agent": "", **chosen}), lines.append)
        with serving(app) as url:
            return rehearse(Settings(run_dir, "", agent_url=url, **chosen), lines.append)

    return run


def one(report, severity=Severity.ERROR):
    """The report's only finding of a severity."""
    (found,) = [finding for finding in report.findings if finding.severity is severity]
    return found


def ids(report):
    return [finding.id for finding in report.findings]


def wordle_app(**options):
    app = BedrockAgentCoreApp()

    @app.entrypoint
    @rft_handler(app=app, floor=WORDLE.floor, allow_hosts=HERE, **options)
    def invoke(rollout: Rollout):
        return play(WORDLE, rollout)

    return app


def test_a_job_that_would_complete_is_told_with_its_numbers(at, tmp_path):
    report = at(wordle_app(), steps=2, validation_rows=2)
    assert report.rehearsed.status is Status.COMPLETED
    assert report.rehearsed.failure_reason is None
    assert report.verdict == "JobStatus Completed"
    told = json.loads((tmp_path / "run" / "report.json").read_text())
    assert told["status"] == "Completed"
    assert told["failure_reason"] is None
    assert told["summary"]["rollouts"]["training"] == 8
    assert told["summary"]["rollouts"]["validation"] == 4
    assert told["summary"]["validation_solve_rate"] == 1.0
    assert told["projection"]["plan"]["batch_size"] == 128
    assert len(told["rollouts"]) == 12
    metrics = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in metrics] == [0, 1, 2, 2]
    assert metrics[0]["val/reward/pass_at_1"] == 1.0
    assert metrics[1]["training/num_trajectories"] == 4


def test_prompts_of_a_dataset_reach_the_agent_to_the_character(at, tmp_path):
    prompts = ['{"a": "caf\u00e9",  "b": [1]}', "plain \u2028 text\n", "\U0001f600 last "]
    path = tmp_path / "rows.jsonl"
    rows = ({"id": n, "prompt": prompt} for n, prompt in enumerate(prompts))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    payloads = []

    def remember(wire):
        payloads.append(wire.payload)
        plays_well(wire, float(len(payloads)))

    report = at(plain_agent(remember), dataset=path, batch=3, group=1)
    assert report.rehearsed.status is Status.COMPLETED
    assert sorted(payload["prompt"] for payload in payloads) == sorted(prompts)
    assert {*payloads[0]} == {"prompt", "metadata", "inferenceParams"}
    assert payloads[0]["metadata"]["jobArn"] == report.job_arn
    assert payloads[0]["inferenceParams"] == {"temperature": 1.0, "topP": 1.0, "maxTokens": 8192}
    assert "rows-below-batch" in ids(report)  # of the job as it would be launched
    assert report.comes_to is Verdict.NOT_LAUNCHED
    assert report.projection is None
    assert any("3 rows make no step of 128 prompts" in note for note in report.notes)
    assert not any("$" in line for line in report.lines())
    found = next(one for one in report.findings if one.id == "rows-of-no-task")
    assert found.severity is Severity.WARNING  # the agent may play another environment, or none
    assert "Not one of 3 rows is a task of environment 'wordle'" in found.message


def test_rows_that_are_no_tasks_are_found_before_anything_is_played(tmp_path):
    path = tmp_path / "rows.jsonl"
    bad = json.dumps({"prompt": "Find the secret word.", "answer": "CHOKER", "id": "b"})
    rows = [*WORDLE.tasks("train", 2), bad]
    path.write_text("".join(json.dumps({"prompt": row}) + "\n" for row in rows))
    said = []

    def say(line):
        said.append(line)
        raise InterruptedError  # nothing is started yet

    with pytest.raises(InterruptedError):
        rehearse(Settings(tmp_path / "run", "", agent_url="http://127.0.0.1:9", dataset=path), say)
    assert said[0].startswith(f"ERROR        rows-no-task ({path}, row 3): 1 of 3 rows are no task")
    path.write_text("".join(json.dumps({"prompt": row}) + "\n" for row in rows[:2]))
    assert check_rows(prepare(Settings(tmp_path / "run", "", dataset=path))) == []


def test_the_job_is_created_as_a_launch_creates_it(at):
    report = at(plain_agent(plays_well), hyperparameters={"learning_rate": "2e-5"})
    assert re.fullmatch(r".*:job/AgentRFT/rehearsal-[0-9a-f]{4}-\d{14}", report.job_arn)


def test_no_server_listening_is_told_after_agentcore_s_30_seconds(at):
    report = at(agent_url="http://127.0.0.1:9")
    assert report.rehearsed.failure_reason is FailureReason.NO_SAMPLING
    found = one(report)
    assert found.id == "agent-not-listening"
    assert "waits 30 s" in found.message
    assert "app.run()" in found.fix


def test_an_entrypoint_that_never_serves_is_told_with_the_end_of_its_log(at, tmp_path):
    path = tmp_path / "main.py"
    path.write_text("print('all set up')\n")  # and no app.run()
    report = at(agent=str(path))
    found = one(report)
    assert found.id == "agent-exited"
    assert "ended with exit code 0" in found.message
    assert "The last line it wrote: all set up" in found.message
    assert "app.run()" in found.fix


@pytest.mark.slow
def test_an_entrypoint_that_cannot_be_imported_is_told_with_its_error(at, tmp_path):
    path = tmp_path / "main.py"
    path.write_text("import nothing_of_that_name\n")
    found = one(at(agent=str(path)))
    assert found.id == "agent-exited"
    assert "ended with exit code 1" in found.message
    assert "last line it wrote: ModuleNotFoundError: No module named 'nothing_of" in found.message


def test_decorators_in_the_wrong_order_are_told(at):
    app = BedrockAgentCoreApp()

    @rft_handler(app=app, allow_hosts=HERE)
    @app.entrypoint
    def invoke(rollout: Rollout):
        return play(WORDLE, rollout)

    report = at(app)
    assert report.rehearsed.failure_reason is FailureReason.NO_SAMPLING
    found = one(report)
    assert found.id == "handler-not-called"
    assert "HTTP 500" in found.message
    assert "wrong order" in found.message
    assert found.fix.startswith("Write @app.entrypoint on top and @rft_handler(app=app) directly")


def test_decorators_in_the_wrong_order_are_told_also_where_the_function_answers(at):
    app = BedrockAgentCoreApp()

    @rft_handler(app=app, allow_hosts=HERE)
    @app.entrypoint
    def invoke(payload):
        return {"reward": 1.0}

    found = one(at(app))
    assert found.id == "nobody-reported"
    assert '{"reward": 1.0}' in found.message
    assert "@app.entrypoint on top" in found.fix


def test_an_app_without_an_entrypoint_is_told(at):
    found = one(at(BedrockAgentCoreApp()))
    assert found.id == "handler-not-called"
    assert "no function is registered with @app.entrypoint" in found.message


def test_a_server_without_the_route_is_told(at):
    from starlette.applications import Starlette

    found = one(at(Starlette()))
    assert found.id == "no-invocations-route"
    assert "HTTP 404" in found.message


def test_an_error_status_fails_the_job_and_is_told(at):
    def failing(wire):
        wire.sample()
        wire.complete("failed")
        wire.reward(0.0)
        return {"status": "error", "error": "the tool broke"}

    report = at(plain_agent(failing))
    assert report.rehearsed.failure_reason is FailureReason.AGENT_FAILED
    assert report.verdict == (
        "JobStatus Failed, FailureReason: The agent signaled that the trajectory failed"
    )
    found = one(report)
    assert found.id == "agent-reported-failure"
    assert "the tool broke" in found.message
    assert "Return a reward for every rollout" in found.fix


def test_an_agent_that_never_calls_the_model_is_told(at):
    def lazy(wire):
        wire.complete()
        wire.reward(1.0)

    report = at(plain_agent(lazy))
    assert report.rehearsed.failure_reason is FailureReason.NO_SAMPLING
    found = one(report)
    assert found.id == "agent-never-sampled"
    assert "a reward of 1" in found.message


def test_under_our_handler_such_an_agent_gets_through_and_is_warned_about(at):
    app = BedrockAgentCoreApp()
    rewards = itertools.count()

    @app.entrypoint
    @rft_handler(app=app, allow_hosts=HERE)
    def invoke(rollout: Rollout):
        return float(next(rewards))

    report = at(app)
    assert report.rehearsed.status is Status.COMPLETED
    assert "saved-no-sampling" in ids(report)


def test_calls_without_the_headers_are_told(at):
    def anonymous(wire):
        headers = dict(wire.headers)
        wire.headers = {"authorization": headers["authorization"]}
        wire.sample()
        wire.headers = headers
        wire.complete()
        wire.reward(1.0)

    found = one(at(plain_agent(anonymous)))
    assert found.id == "sampling-unattributed"
    assert "without the headers" in found.message
    assert "X-Amzn-SageMaker-Trajectory-Id" in found.fix


def test_a_trajectory_id_that_is_not_the_payload_s_is_told(at):
    def stuck(wire):
        wire.headers["x-amzn-sagemaker-trajectory-id"] = "yesterday"
        wire.sample()
        wire.complete()
        wire.reward(1.0)

    found = one(at(plain_agent(stuck)))
    assert found.id == "sampling-unattributed"
    assert "'yesterday'" in found.message


def test_tokens_that_do_not_verify_are_told(at):
    def expired(wire):
        wire.headers["authorization"] = "Bearer sagemaker-api-key-bm8="
        wire.sample()

    found = one(at(plain_agent(expired)))
    assert found.id == "sampling-refused"
    assert "1 with 403. It said: Authentication failed" in found.message
    assert "AmazonSageMakerJobRuntimeAccess" in found.fix


def test_a_token_of_another_region_is_told_and_not_taken_for_missing_headers(at):
    def elsewhere(wire):
        wire.headers["authorization"] = f"Bearer {mint(region='us-east-1')}"
        wire.sample()
        wire.complete()
        wire.reward(1.0)

    found = one(at(plain_agent(elsewhere)))
    assert found.id == "sampling-refused"
    assert "it is for us-east-1, not us-west-2" in found.message


def test_a_reward_after_the_timeout_is_told_with_how_late_it_was(at):
    threads = []

    def late(wire):
        def report():
            time.sleep(2.6)
            with suppress(httpx.HTTPError):  # the last one finds the Job Runtime gone
                wire.complete()
                wire.reward(1.0)

        wire.sample()
        threads.append(threading.Thread(target=report))
        threads[-1].start()
        return {"status": "accepted"}

    three = {"rollout_max_retries": "3"}
    report = at(plain_agent(late), batch=1, group=1, speed=300.0, hyperparameters=three)
    assert report.rehearsed.failure_reason is FailureReason.NO_REWARD
    for thread in threads:
        thread.join()
    found = one(report)
    assert found.id == "reward-late"
    assert "600 s (2 s here, at speed 300)" in found.message
    assert "ROLLOUT_BUDGET_SECONDS" in found.fix
    first = report.rehearsed.killer.attempts[0]
    assert report.rehearsed.late[first.rollout_id] > 2.6


def test_a_completion_without_a_reward_is_told(at):
    def forgetful(wire):
        wire.sample()
        wire.complete()
        return {"result": "solved"}

    report = at(plain_agent(forgetful))
    assert report.rehearsed.failure_reason is FailureReason.NO_REWARD
    found = one(report)
    assert found.id == "reward-missing"
    assert '{"result": "solved"}' in found.message
    assert "under the key 'reward'" in found.fix


def test_reports_that_are_refused_are_told(at):
    def hasty(wire):
        wire.sample()
        wire.reward(1.0)

    found = one(at(plain_agent(hasty)))
    assert found.id == "reports-refused"
    assert "1 with 409. It said: trajectory " in found.message
    assert "is PENDING and not in valid status for a reward" in found.message


def test_a_reward_that_is_text_is_told_with_what_the_job_runtime_said_of_it(at):
    def wordy(wire):
        wire.sample()
        wire.complete()
        wire.reward("0.5")

    found = one(at(plain_agent(wordy)))
    assert found.id == "reports-refused"
    assert "It said: Rewards[0]: wanted a finite number, got '0.5'" in found.message


@pytest.mark.parametrize("status", [200, 502])
def test_a_server_that_answers_in_html_is_probably_not_the_agent(at, status):
    page = HTMLResponse("<html><body>Welcome to nginx</body></html>", status)
    found = one(at(plain_agent(lambda wire: page)))
    assert found.id == "answer-not-json"
    assert "Welcome to nginx" in found.message
    assert "probably not the agent" in found.message


@pytest.mark.parametrize("returned", ["0.5", {"status": "error", "error": "boom"}])
def test_a_returned_value_that_is_no_reward_is_not_told_as_an_exception(at, returned):
    app = BedrockAgentCoreApp()

    @app.entrypoint
    @rft_handler(app=app, allow_hosts=HERE)
    def invoke(rollout: Rollout):
        play(WORDLE, rollout)
        return returned

    report = at(app)
    assert report.comes_to is Verdict.TEACHES_NOTHING
    assert "saved-agent-error" not in ids(report)
    found = next(one for one in report.findings if one.id == "saved-no-reward")
    assert found.fix.startswith("Return a number")


def test_a_row_that_always_fails_is_told_apart_from_an_agent_that_does(at):
    tasks = WORDLE.tasks("train", 4)

    def choosy(wire):
        if wire.payload["prompt"] != tasks[2]:
            return plays_well(wire)
        wire.sample()
        wire.complete("failed")
        return {"status": "error"}

    report = at(plain_agent(choosy), batch=4, group=1, hyperparameters={"rollout_max_retries": "3"})
    killer = report.rehearsed.killer
    assert killer.row == 2
    assert len(killer.attempts) == 3
    found = one(report)
    assert found.where == "the dataset, row 3 (step 1)"
    assert "look at this row's data" in found.message
    assert "Each of 3 attempts failed" in found.message


def test_a_failure_that_the_next_attempt_mends_is_a_warning(at):
    calls = itertools.count()

    def shaky(wire):
        if next(calls) == 0:
            return JSONResponse({"error": "not yet"}, 500)
        return plays_well(wire, next(calls) % 3)

    report = at(plain_agent(shaky), hyperparameters={"rollout_max_retries": "2"})
    assert report.rehearsed.status is Status.COMPLETED
    assert "retried-handler-not-called" in ids(report)


def test_rewards_that_never_vary_are_warned_about(at):
    report = at(plain_agent(plays_well))
    assert report.rehearsed.status is Status.COMPLETED
    found = one(report, Severity.WARNING)
    assert found.id == "reward-never-varies"
    assert "nothing to learn from" in found.message


@pytest.mark.slow
def test_a_budget_that_the_timeout_does_not_cover_is_warned_about(at, tmp_path):
    path = tmp_path / "main.py"
    path.write_text(
        "from bedrock_agentcore import BedrockAgentCoreApp\n"
        "from rft_agent_sdk import Rollout, load_environment, play, rft_handler\n"
        "app = BedrockAgentCoreApp()\n"
        "@app.entrypoint\n"
        "@rft_handler(app=app, budget_s=580)\n"
        "def invoke(rollout: Rollout):\n"
        "    return play(load_environment('wordle'), rollout)\n"
        "app.run()\n"
    )
    report = at(agent=str(path))
    assert report.rehearsed.status is Status.COMPLETED
    found = next(one for one in report.findings if one.id == "budget-over-timeout")
    assert "580 s" in found.message
    assert "600 s" in found.message


def test_parameters_that_the_agent_keeps_to_itself_are_warned_about(at):
    rewards = itertools.count()

    def deaf(wire):
        wire.post(
            "v1/chat/completions", model="default", messages=[{"role": "user", "content": "x"}]
        )
        wire.complete()
        wire.reward(next(rewards))

    report = at(plain_agent(deaf))
    found = one(report, Severity.WARNING)
    assert found.id == "sampling-not-passed-on"
    assert "max_tokens, temperature, top_p" in found.message


def test_an_agent_that_hangs_is_let_go_of_at_the_timeout(tmp_path):
    release = threading.Event()

    def hang(wire):
        release.wait(60)

    with serving(plain_agent(hang)) as url:
        settings = Settings(
            tmp_path / "run",
            "",
            agent_url=url,
            batch=1,
            group=1,
            validation_rows=0,
            speed=600.0,
            hyperparameters={"rollout_max_retries": "1"},
        )
        started = time.monotonic()
        report = rehearse(settings, print)
        assert time.monotonic() - started < 30
        release.set()
    assert one(report).id == "agent-hangs"
    assert "within 600 s (1 s here, at speed 600)" in one(report).message


def test_a_model_s_server_answers_in_place_of_a_policy(at):
    with ScriptedServer(lambda seen, count: completion(f"reply {count}")) as upstream:
        rewards = itertools.count()

        def chatty(wire):
            told = wire.sample()["choices"][0]["message"]["content"]
            assert told.startswith("reply ")
            wire.complete()
            wire.reward(next(rewards))

        report = at(plain_agent(chatty), policy=f"openai:{upstream.url}#tiny")
    assert report.rehearsed.status is Status.COMPLETED
    assert len(upstream.samples) == 4
    asked = upstream.samples[0].json
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("tiny", 1.0, 8192)
    measured = report.projection.measured
    assert (measured.prefill, measured.sample) == (3.0, 2.0)


def test_a_rehearsal_with_a_model_s_server_keeps_the_service_s_pace(tmp_path):
    slow = prepare(Settings(tmp_path, "", policy="openai:http://127.0.0.1:9"))
    assert slow.terms.speed == 1.0
    assert prepare(Settings(tmp_path, "")).terms.speed == 10.0


def test_a_full_rehearsal_is_the_job_s_own_numbers(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"prompt": "{number}"}}\n' for number in range(300)))
    held_out = tmp_path / "held_out.csv"
    held_out.write_text("question,answer\nhow many?,3\nwhich?,that\n")
    settings = Settings(tmp_path, "", dataset=path, validation=held_out, is_full=True)
    full = prepare(settings)
    assert (full.plan.steps, full.plan.batch, full.plan.group) == (2, 128, 8)
    assert (full.terms.speed, full.terms.silence_s, full.terms.timeout_s) == (1.0, None, 600.0)
    assert len(full.train.prompts) == 300
    assert full.validation is not None
    assert full.validation.prompts == ["how many?", "which?"]  # of the first column
    small = prepare(replace(settings, is_full=False, rows=10, validation_rows=1))
    assert (len(small.train.prompts), small.train.rows) == (10, 300)
    assert small.train.played.count(b"\n") == 10
    assert small.validation is not None
    assert small.validation.prompts == ["how many?"]
    assert small.job_plan.steps == 2


def test_a_full_rehearsal_without_enough_rows_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--dataset"):
        prepare(Settings(tmp_path, "", is_full=True))
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n')
    with pytest.raises(UsageError, match="1 rows do not make one step of 128"):
        prepare(Settings(tmp_path, "", dataset=path, is_full=True))


def test_noise_follows_the_temperature_that_the_agent_asks_for():
    policy = rehearsal_policy("solver", "wordle", noise=1.0)
    assert isinstance(policy, Policy)
    game = WORDLE.start(WORDLE.tasks("train", 1)[0])
    request = PolicyRequest((Message("user", game.prompt),), tuple(game.tools))

    async def first_guess(temperature):
        asked = replace(request, sampling=SamplingParams(temperature=temperature))
        (call,) = (await policy.reply(asked)).message.tool_calls
        return json.loads(call.arguments)["guess"]

    async def guesses():
        try:
            return [await first_guess(temperature) for temperature in (0.0, 1.0)]
        finally:
            await policy.aclose()

    calm, wild = asyncio.run(guesses())
    assert calm == "slate"
    assert wild != "slate"


def test_a_launch_s_file_says_what_is_rehearsed(tmp_path):
    path = tmp_path / "launch.yaml"
    path.write_text(
        "model: huggingface-vlm-qwen3-6-27b\n"
        "region: us-west-2\n"
        "dataset: rows.jsonl\n"
        "validation_dataset: s3://bucket/held-out.jsonl\n"
        "rollout_timeout: 900.0\n"
        "hyperparameters: {temperature: 0.8}\n"
    )
    told = launch_settings(path)
    assert told["model"] == "huggingface-vlm-qwen3-6-27b"
    assert told["dataset"] == Path("rows.jsonl")
    assert "validation" not in told
    prepared = prepare(Settings(tmp_path, "", hyperparameters=told["hyperparameters"]))
    assert prepared.terms.timeout_s == 900.0
    assert prepared.plan.sampling.temperature == 0.8
    path.write_text("model: huggingface-vlm-qwen3-6-27b\nrollout_timeout: 1.0\n")
    with pytest.raises(UsageError, match="rollout_timeout"):
        launch_settings(path)


def test_a_secret_in_a_server_s_url_is_not_shown(tmp_path):
    prepared = prepare(Settings(tmp_path, "", policy="openai:http://me:pw@127.0.0.1:9/v1?key=x#m"))
    assert prepared.policy_shown == "openai:http://127.0.0.1:9/v1#m"


def test_loopback_goes_through_no_proxy():
    assert without_proxy({"no_proxy": "corp.example"}) == {
        "NO_PROXY": "127.0.0.1,corp.example,localhost",
        "no_proxy": "127.0.0.1,corp.example,localhost",
    }


def test_aws_variables_are_put_aside_and_come_back(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with only_these_aws_variables({"AWS_REGION": "us-west-2", "SAGEMAKER_X": "1"}):
        assert "AWS_PROFILE" not in os.environ
        assert os.environ["AWS_REGION"] == "us-west-2"
    assert os.environ["AWS_PROFILE"] == "work"
    assert os.environ["AWS_REGION"] == "eu-west-1"
    assert "SAGEMAKER_X" not in os.environ


def test_a_hyperparameter_that_no_job_takes_is_refused_before_anything_starts(at):
    with pytest.raises(UsageError, match="rollout_timeout"):
        at(agent_url="http://127.0.0.1:9", hyperparameters={"rollout_timeout": "10"})


def test_a_dataset_whose_cell_is_no_text_is_refused_with_its_row(at, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": {"answer": 1}}\n')
    with pytest.raises(UsageError, match="line 2"):
        at(agent_url="http://127.0.0.1:9", dataset=Path(path))
