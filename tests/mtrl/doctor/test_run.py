"""Going through the checks: choosing them, one that fails itself, what is skipped, what they add up to."""

import json
import re

import pytest

from rft_agent_sdk import UsageError
from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.doctor.check import Check, DoesNotApply, Result, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.checks import GROUPS
from rft_agent_sdk.mtrl.doctor.needs import NEEDS
from rft_agent_sdk.mtrl.doctor.run import choose, examine
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.mtrl.findings import Finding, Severity
from tests.mtrl.doctor.world import sound

CHECKS = [check for checks in GROUPS.values() for check in checks]


def made(run, *, needs=(), matters=True, setup=None):
    """Make one check of our own and return the report."""
    check = Check("own", "Own", run, needs, matters)
    return examine(setup or Setup(), [("group", check)])


def raising(error):
    def run(setup):
        raise error

    return run


def test_names_of_checks_and_groups_are_in_kebab_case_and_all_different():
    names = [*GROUPS, *(check.id for check in CHECKS)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)


def test_every_check_says_what_it_looks_for_and_needs_what_is_known():
    for check in CHECKS:
        assert check.title
        assert check.run.__doc__
        assert set(check.needs) <= set(NEEDS)


@pytest.mark.parametrize(
    ("only", "skip", "ids"),
    [
        (["node"], [], ["node"]),
        (["rewards"], [], ["environment", "reward-order", "reward-threshold", "reward-floor"]),
        (["rewards", "uv"], ["environment", "reward-order"], ["uv", "reward-threshold", "reward-floor"]),
        (["rewards"], ["rewards"], []),
    ],
)  # fmt: skip
def test_checks_are_chosen_by_id_or_group(only, skip, ids):
    assert [check.id for _, check in choose(only, skip)] == ids


def test_an_unknown_name_is_refused():
    with pytest.raises(UsageError, match="--list"):
        choose(["nodes"])


def test_a_check_that_fails_itself_is_a_finding_and_the_others_are_made():
    failing = Check("own", "Own", raising(ZeroDivisionError("division by zero")))
    sound = Check("other", "Other", lambda setup: "well")
    report = examine(Setup(), [("group", failing), ("group", sound)])
    first, second = report.checked
    assert first.result is Result.PROBLEM
    assert first.findings[0].id == "check-failed"
    assert "ZeroDivisionError: division by zero" in first.found
    assert "--skip own" in first.fix
    assert second.found == "well"


def test_one_that_may_not_look_is_a_warning():
    denied = CloudError("asking: AccessDenied", code="AccessDenied")
    (found,) = made(raising(denied)).checked
    assert found.result is Result.WARNING
    assert "Allow the caller" in found.fix


def test_one_that_gets_no_answer_is_skipped_and_so_not_known_to_be_safe():
    report = made(raising(CloudError("asking: no route", is_transient=True)))
    assert report.checked[0].result is Result.SKIPPED
    assert not report.is_safe


def test_what_does_not_apply_is_well():
    assert made(raising(DoesNotApply("no Lambda function"))).is_safe


def test_an_option_that_cannot_be_read_is_a_problem_and_no_traceback():
    (found,) = made(raising(UsageError("no AWS region"))).checked
    assert (found.result, found.found) == (Result.PROBLEM, "no AWS region")


def test_everything_that_is_lacking_is_told_at_once():
    (found,) = made(lambda setup: "well", needs=("role", "agent")).checked
    assert found.result is Result.SKIPPED
    assert "--role" in found.found
    assert "--agent" in found.found
    assert "Give --role ARN." in found.fix


@pytest.mark.parametrize(
    ("run", "matters", "is_safe"),
    [
        (lambda setup: "well", True, True),
        (lambda setup: warning("odd", "Look."), True, True),
        (lambda setup: problem("bad", "Mend."), True, False),
        (lambda setup: problem("bad", "Mend."), False, False),
        (raising(Skipped("no", "Do.")), True, False),
        (raising(Skipped("no", "Do.")), False, True),
    ],
)
def test_it_is_safe_where_nothing_is_wrong_and_everything_that_matters_was_looked_at(
    run, matters, is_safe
):
    assert made(run, matters=matters).is_safe is is_safe


def test_of_several_findings_the_worst_comes_first_and_notes_alone_are_well():
    note = Finding("", Severity.NOTE, "", "worth knowing", "Nothing.")
    (found,) = made(lambda setup: [note, warning("odd", "Look."), problem("bad", "Mend.")]).checked
    assert [one.message for one in found.findings] == ["bad", "odd", "worth knowing"]
    assert (found.result, found.found, found.fix) == (Result.PROBLEM, "bad", "Mend.")
    assert {one.id for one in found.findings} == {"own"}
    assert made(lambda setup: note).checked[0].result is Result.OK


def test_a_lookup_that_failed_is_not_made_again():
    calls = []

    def look():
        calls.append(1)
        raise Skipped("no", "Do.")

    setup = Setup()
    for _ in range(2):
        with pytest.raises(Skipped):
            setup.once("name", look)
    assert calls == [1]


def test_an_environment_whose_module_fails_is_told_once_and_no_check_fails_on_it(
    tmp_path, monkeypatch
):
    (tmp_path / "broken_game.py").write_text("import absent_engine\n")
    monkeypatch.syspath_prepend(tmp_path)
    report = examine(Setup(environment="broken_game:environment"), choose(["rewards"]))
    first, *rest = report.checked
    assert first.result is Result.PROBLEM
    assert "absent_engine" in first.found
    assert {one.result for one in rest} == {Result.SKIPPED}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "null", '{"runtimes": 3}', '{"runtimes": [3]}', '{"runtimes": [{}]}'],
)  # fmt: skip
@pytest.mark.parametrize(
    "name", ["agentcore/agentcore.json", "agentcore/aws-targets.json", "payload.json"]
)
def test_no_check_fails_on_a_project_of_any_shape(name, text, tmp_path):
    (tmp_path / "agentcore/app").mkdir(parents=True)
    (tmp_path / name).write_text(text)
    report = examine(Setup(root=tmp_path), choose(["project", "account", "launch"]))
    assert [one.found for one in report.checked if one.findings and one.findings[0].id == "check-failed"] == []  # fmt: skip


@pytest.mark.parametrize(
    "runtime",
    [
        {"codeLocation": 3, "entrypoint": None},
        {"codeLocation": "agentcore/app", "entrypoint": "main.py:app", "envVars": "x"},
        {"codeLocation": "agentcore/app", "entrypoint": "main.py", "envVars": [{"name": "A=B", "value": "\0"}, 7]},
        {"codeLocation": "agentcore/app", "entrypoint": "main.ts"},
        {"codeLocation": "agentcore/app", "entrypoint": "app"},
    ],
)  # fmt: skip
def test_no_check_fails_on_a_runtime_of_any_shape(runtime, tmp_path):
    (tmp_path / "agentcore/app").mkdir(parents=True)
    (tmp_path / "agentcore/app/main.py").write_text("x = 1\n")
    (tmp_path / "agentcore/agentcore.json").write_text(json.dumps({"runtimes": [runtime]}))
    report = examine(Setup(root=tmp_path), choose(["project"]))
    assert [one.found for one in report.checked if one.findings and one.findings[0].id == "check-failed"] == []  # fmt: skip


def test_an_account_without_a_region_is_told_what_to_set(tmp_path, monkeypatch):
    with sound(tmp_path, monkeypatch, has_agent=False) as world:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name)
        world.launch(agent="", region="")
        found = world.check("identity")
        other = world.check("running-jobs")
    assert found.result is Result.PROBLEM
    assert "AWS_REGION" in found.fix
    assert other.result is Result.SKIPPED
    assert "identity" in other.fix


def test_what_a_credential_process_prints_when_it_fails_is_not_told(tmp_path, monkeypatch):
    config = tmp_path / "config"
    config.write_text("[default]\ncredential_process = /bin/sh -c 'echo hunter2 >&2; exit 1'\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    (found,) = examine(Setup(), choose(["identity"])).checked
    assert found.result is Result.SKIPPED
    assert "CredentialRetrievalError" in found.found
    assert "hunter2" not in str(found)


def test_a_profile_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    (found,) = examine(Setup(), choose(["identity"])).checked
    assert found.result is Result.SKIPPED
    assert "nobody" in found.found


def test_endpoints_of_aws_itself_and_those_that_are_meant_are_well():
    named = {
        "AWS_ENDPOINT_URL_S3": "https://bucket.vpce-1a2b.s3.us-west-2.vpce.amazonaws.com",
        "AWS_ENDPOINT_URL_SAGEMAKERJOBRUNTIME": "https://job-runtime.sagemaker.us-west-2.api.aws",
        "AWS_ENDPOINT_URL_IAM": "http://127.0.0.1:4566/",
    }
    meant = frozenset({"http://127.0.0.1:4566"})
    chosen = choose(["aws-endpoints"])
    assert examine(Setup(environ=named, endpoints=meant), chosen).checked[0].result is Result.OK
    (found,) = examine(Setup(environ=named), chosen).checked
    assert found.result is Result.WARNING
    assert "AWS_ENDPOINT_URL_IAM=http://127.0.0.1:4566" in found.found
    assert "AWS_ENDPOINT_URL_S3" not in found.found


def test_an_account_that_cannot_be_reached_is_skipped(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    report = examine(Setup(), choose(["identity", "clock-skew", "running-jobs"]))
    assert {one.result for one in report.checked} == {Result.SKIPPED}
    assert not report.is_safe
