"""No false alarm: on a sound set-up every check is made, and every one is well."""

import json

from rft_agent_sdk.mtrl.doctor.check import Result
from rft_agent_sdk.mtrl.doctor.checks import GROUPS

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


def test_on_a_sound_set_up_every_check_is_made_and_well(world):
    world.setup.url = world.runtime.url
    report = world.examine()
    assert {
        one.check.id: (one.result, one.found)
        for one in report.checked
        if one.result is not Result.OK
    } == {}
    assert len(report.checked) == sum(map(len, GROUPS.values()))
    assert report.is_safe
    assert all(one.found for one in report.checked)


def test_nothing_is_changed_and_no_secret_is_told(world):
    report = world.examine()
    assert {call.operation for call in world.cloud.mutations} <= {
        "InvokeAgentRuntime",
        "StopRuntimeSession",
    }
    assert SECRET not in json.dumps(report.as_json())
    assert world.cloud.invocations.sessions == {}
