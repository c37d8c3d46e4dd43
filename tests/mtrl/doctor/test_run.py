"""Going through the checks: choosing them, one that fails itself, what is skipped, what they add up to."""

import re

import pytest

from rft_agent_sdk import UsageError
from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.doctor.check import Check, DoesNotApply, Result, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.checks import GROUPS
from rft_agent_sdk.mtrl.doctor.run import choose, examine
from rft_agent_sdk.mtrl.doctor.setup import NEEDS, Setup
from rft_agent_sdk.mtrl.findings import Finding, Severity

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
