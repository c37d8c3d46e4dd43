"""CloudWatch Logs of the local cloud, by boto3."""

import pytest

from tests.twins.cloud_play import refused

GROUP = "/aws/sagemaker/Job/AgentRFT"


@pytest.fixture
def logs(play):
    for number in range(5):
        play.cloud.log(GROUP, "job/trainer", f"step {number}", time_ms=1000 + number)
    play.cloud.log(GROUP, "job/agent", "ERROR no reward", time_ms=1002)
    play.cloud.log(GROUP, "other/trainer", "step 0", time_ms=900)
    return play["logs"]


def messages(answer):
    return [event["message"] for event in answer["events"]]


def test_streams_are_found_by_prefix_and_in_order(logs):
    def names(**asked):
        found = logs.describe_log_streams(logGroupName=GROUP, **asked)["logStreams"]
        return [stream["logStreamName"] for stream in found]

    assert names() == ["job/agent", "job/trainer", "other/trainer"]
    assert names(logStreamNamePrefix="job/") == ["job/agent", "job/trainer"]
    assert names(orderBy="LastEventTime", descending=True)[0] == "job/trainer"
    first = logs.describe_log_streams(logGroupName=GROUP, limit=2)
    assert names(nextToken=first["nextToken"]) == ["other/trainer"]
    described = logs.describe_log_streams(logGroupName=GROUP)["logStreams"][1]
    assert (described["firstEventTimestamp"], described["lastEventTimestamp"]) == (1000, 1004)
    with refused("InvalidParameterException", "nextToken"):
        names(nextToken="elsewhere")


def test_events_are_read_forward_until_the_token_stands_still(logs):
    asked = {"logGroupName": GROUP, "logStreamName": "job/trainer", "limit": 3}
    first = logs.get_log_events(**asked, startFromHead=True)
    assert messages(first) == ["step 0", "step 1", "step 2"]
    second = logs.get_log_events(**asked, nextToken=first["nextForwardToken"])
    assert messages(second) == ["step 3", "step 4"]
    third = logs.get_log_events(**asked, nextToken=second["nextForwardToken"])
    assert messages(third) == []
    assert third["nextForwardToken"] == second["nextForwardToken"]
    back = logs.get_log_events(**asked, nextToken=second["nextBackwardToken"])
    assert messages(back) == ["step 0", "step 1", "step 2"]


def test_without_a_start_the_latest_events_come(logs):
    asked = {"logGroupName": GROUP, "logStreamName": "job/trainer"}
    assert messages(logs.get_log_events(**asked, limit=2)) == ["step 3", "step 4"]
    within = logs.get_log_events(**asked, startTime=1001, endTime=1003)
    assert messages(within) == ["step 1", "step 2"]


def test_events_that_come_later_follow_a_token(play, logs):
    asked = {"logGroupName": GROUP, "logStreamName": "job/trainer", "startFromHead": True}
    token = logs.get_log_events(**asked)["nextForwardToken"]
    play.cloud.log(GROUP, "job/trainer", "step 5", time_ms=1005)
    assert messages(logs.get_log_events(**asked, nextToken=token)) == ["step 5"]


def test_events_are_filtered_over_streams(logs):
    def found(**asked):
        return messages(logs.filter_log_events(logGroupName=GROUP, **asked))

    assert found(filterPattern="ERROR") == ["ERROR no reward"]
    assert found(filterPattern='"no reward"', logStreamNamePrefix="job/") == ["ERROR no reward"]
    assert found(logStreamNames=["other/trainer"]) == ["step 0"]
    assert found(startTime=1002, endTime=1003) == ["ERROR no reward", "step 2"]
    assert found()[0] == "step 0"
    first = logs.filter_log_events(logGroupName=GROUP, limit=6)
    assert found(limit=6, nextToken=first["nextToken"]) == ["step 4"]


def test_groups_live_and_die(play, logs):
    logs.create_log_group(logGroupName="/mine")
    logs.create_log_stream(logGroupName="/mine", logStreamName="s")
    event = {"timestamp": 1, "message": "hello"}
    logs.put_log_events(logGroupName="/mine", logStreamName="s", logEvents=[event])
    assert play.cloud.log_lines("/mine", "s") == ["hello"]
    for call in (
        lambda: logs.create_log_group(logGroupName="/mine"),
        lambda: logs.create_log_stream(logGroupName="/mine", logStreamName="s"),
    ):
        with refused("ResourceAlreadyExistsException"):
            call()
    found = logs.describe_log_groups(logGroupNamePrefix="/aws/")["logGroups"]
    assert [group["logGroupName"] for group in found] == [GROUP]
    assert len(logs.describe_log_groups(logGroupNamePattern="MINE")["logGroups"]) == 1
    logs.delete_log_group(logGroupName="/mine")
    for call in (
        lambda: logs.delete_log_group(logGroupName="/mine"),
        lambda: logs.describe_log_streams(logGroupName="/mine"),
        lambda: logs.filter_log_events(logGroupName="/mine"),
        lambda: logs.get_log_events(logGroupName=GROUP, logStreamName="none"),
    ):
        with refused("ResourceNotFoundException", "does not exist"):
            call()
    assert play.cloud.log_lines("/mine", "s") == []


def test_a_name_that_the_model_forbids_is_refused(logs):
    with refused("InvalidParameterException", "logGroupName"):
        logs.create_log_group(logGroupName="a b")
