"""AgentCore runtimes of the local cloud, by boto3: the control plane, and invocations of a real agent server."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from rft_agent_sdk.twins.cloud import Runtime
from tests.twins.cloud_play import RUNTIME, playing, refused, until

SESSION = "rollout-0000000000000000000000000000001"


class Agent(ThreadingHTTPServer):
    """An agent's server: remembers what it was asked, and answers as told."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen = []
        self.status = 200
        self.hold = None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        assert isinstance(self.server, Agent)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers.items()), body))
        if self.server.hold is not None:
            self.server.hold.wait(10)
        answer = b'{"reward": 1.0}'
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


@contextmanager
def serving():
    with Agent() as agent:
        thread = threading.Thread(target=agent.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield agent
        finally:
            agent.shutdown()
            thread.join()


@pytest.fixture
def agent(play):
    with serving() as made:
        play.cloud.runtimes[RUNTIME].url = made.url
        yield made


def invoke(play, **asked):
    """Invoke the runtime; the answer's body is read, so that its connection is free again."""
    answer = play["bedrock-agentcore"].invoke_agent_runtime(
        **{
            "agentRuntimeArn": play.cloud.runtime_arn(RUNTIME),
            "payload": b'{"prompt": "x"}',
            "runtimeSessionId": SESSION,
            **asked,
        }
    )
    return {**answer, "response": answer["response"].read()}


def test_runtimes_are_listed_and_described(play):
    control = play["bedrock-agentcore-control"]
    vpc = {"securityGroups": ["sg-0123456789abcdef0"], "subnets": ["subnet-0123456789abcdef0"]}
    play.cloud.runtimes["Second-aBcDeFgHiJ"] = Runtime(
        name="Second",
        version="3",
        status="UPDATE_FAILED",
        failure_reason="no image",
        environment={"LOG_LEVEL": "INFO"},
        network={"networkMode": "VPC", "networkModeConfig": vpc},
        endpoints=("DEFAULT", "PROD"),
    )
    found = control.list_agent_runtimes()["agentRuntimes"]
    assert [runtime["agentRuntimeName"] for runtime in found] == ["Second", "Wordle"]
    first = control.list_agent_runtimes(maxResults=1)
    rest = control.list_agent_runtimes(nextToken=first["nextToken"])
    assert rest["agentRuntimes"][0]["agentRuntimeId"] == RUNTIME
    second = control.get_agent_runtime(agentRuntimeId="Second-aBcDeFgHiJ")
    assert second["agentRuntimeArn"] == play.cloud.runtime_arn("Second-aBcDeFgHiJ")
    assert (second["agentRuntimeVersion"], second["status"]) == ("3", "UPDATE_FAILED")
    assert second["failureReason"] == "no image"
    assert second["environmentVariables"] == {"LOG_LEVEL": "INFO"}
    assert second["networkConfiguration"]["networkModeConfig"] == vpc
    assert second["roleArn"] == play.cloud.role_arn("AgentRole")
    assert second["agentRuntimeArtifact"]["codeConfiguration"]["runtime"] == "PYTHON_3_13"
    versions = control.list_agent_runtime_versions(agentRuntimeId="Second-aBcDeFgHiJ")
    assert [one["agentRuntimeVersion"] for one in versions["agentRuntimes"]] == ["1", "2", "3"]
    endpoints = control.list_agent_runtime_endpoints(agentRuntimeId="Second-aBcDeFgHiJ")
    assert [one["name"] for one in endpoints["runtimeEndpoints"]] == ["DEFAULT", "PROD"]
    endpoint = control.get_agent_runtime_endpoint(
        agentRuntimeId="Second-aBcDeFgHiJ", endpointName="PROD"
    )
    assert endpoint["liveVersion"] == "3"
    which = {"agentRuntimeId": "Second-aBcDeFgHiJ", "endpointName": "PROD"}
    assert control.delete_agent_runtime_endpoint(**which)["status"] == "DELETING"
    assert play.cloud.runtimes["Second-aBcDeFgHiJ"].endpoints == ("DEFAULT",)
    for call in (control.delete_agent_runtime_endpoint, control.get_agent_runtime_endpoint):
        with refused("ResourceNotFoundException", "PROD"):
            call(**which)


def test_a_runtime_is_deleted_and_then_not_found(play):
    control = play["bedrock-agentcore-control"]
    assert control.delete_agent_runtime(agentRuntimeId=RUNTIME)["status"] == "DELETING"
    for call in (control.get_agent_runtime, control.delete_agent_runtime):
        with refused("ResourceNotFoundException", RUNTIME):
            call(agentRuntimeId=RUNTIME)
    with refused("ValidationException", "agentRuntimeId"):
        control.get_agent_runtime(agentRuntimeId="short")
    with refused("ResourceNotFoundException"):
        invoke(play)


def test_an_invocation_reaches_the_agents_server_with_its_session(play, agent):
    answer = invoke(play)
    assert json.loads(answer["response"]) == {"reward": 1.0}
    assert (answer["runtimeSessionId"], answer["statusCode"]) == (SESSION, 200)
    assert answer["contentType"] == "application/json"
    ((path, headers, body),) = agent.seen
    assert (path, body) == ("/invocations", b'{"prompt": "x"}')
    assert headers["X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"] == SESSION
    assert headers["Content-Type"] == "application/json"
    assert play.cloud.invocations.sessions == {SESSION: RUNTIME}


def test_a_session_is_made_up_where_none_is_given(play, agent):
    answer = play["bedrock-agentcore"].invoke_agent_runtime(
        agentRuntimeArn=play.cloud.runtime_arn(RUNTIME), payload=b"{}"
    )
    answer["response"].read()
    assert len(answer["runtimeSessionId"]) >= 33
    assert answer["runtimeSessionId"] in play.cloud.invocations.sessions


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_an_agent_that_answers_an_error_is_a_client_error(play, agent, status):
    agent.status = status
    with refused("RuntimeClientError", str(status)):
        invoke(play)


def test_an_agent_that_never_comes_up_is_a_client_error_too(play):
    play.cloud.invocations.start_s = 0.1
    with refused("RuntimeClientError", "Runtime initialization time exceeded"):
        invoke(play)
    play.cloud.runtimes[RUNTIME].url = "http://127.0.0.1:9"
    with refused("RuntimeClientError", "Runtime initialization time exceeded"):
        invoke(play)


def test_an_agent_that_comes_up_in_time_is_waited_for(play):
    with serving() as agent, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(invoke, play)
        until(lambda: play.cloud.calls)
        play.cloud.runtimes[RUNTIME].url = agent.url
        assert answer.result(10)["statusCode"] == 200


def test_invocations_run_side_by_side_and_leave_the_rest_of_the_cloud_free(play, agent):
    agent.hold = threading.Event()
    assert play["bedrock-agentcore"]  # made on this thread: making one is not for several
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(invoke, play, runtimeSessionId=f"{SESSION}{n}") for n in range(8)]
        until(lambda: len(agent.seen) == 8)
        assert play.sagemaker.list_jobs(JobCategory="AgentRFT")["JobSummaries"] == []
        agent.hold.set()
        assert {answer.result(10)["statusCode"] for answer in answers} == {200}


def test_a_cloud_that_closes_ends_what_waits_for_an_agent():
    with serving() as agent, ThreadPoolExecutor(2) as pool:
        agent.hold = threading.Event()
        with playing() as play:
            play.cloud.runtimes["Absent-aBcDeFgHiJ"] = Runtime(name="Absent")
            play.cloud.runtimes[RUNTIME].url = agent.url
            absent = play.cloud.runtime_arn("Absent-aBcDeFgHiJ")
            assert play["bedrock-agentcore"]
            waiting = [
                pool.submit(invoke, play),
                pool.submit(invoke, play, agentRuntimeArn=absent),
            ]
            until(lambda: agent.seen and len(play.cloud.calls) == 2)
            play.cloud.stop()
            for answer in waiting:
                assert isinstance(answer.exception(10), (ClientError, BotoCoreError))
        agent.hold.set()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("RetryableConflictException", 409),
        ("ThrottlingException", 429),
        ("ServiceQuotaExceededException", 402),
        ("InternalServerException", 500),
        ("AccessDeniedException", 403),
    ],
)
def test_errors_come_on_request_with_the_status_of_the_model(play, agent, error, status):
    play.cloud.faults.add("bedrock-agentcore", "InvokeAgentRuntime", error)
    with refused(error) as _:
        invoke(play)
    assert agent.seen == []
    assert invoke(play)["statusCode"] == 200


def test_a_qualifier_must_be_an_endpoint_and_a_session_id_long_enough(play, agent):
    assert invoke(play, qualifier="DEFAULT")["statusCode"] == 200
    with refused("ResourceNotFoundException", "PROD"):
        invoke(play, qualifier="PROD")
    elsewhere = play.cloud.runtime_arn(RUNTIME).replace("us-west-2", "us-east-1")
    with refused("ResourceNotFoundException", "us-east-1"):
        invoke(play, agentRuntimeArn=elsewhere)


def test_a_session_is_stopped_once(play, agent):
    invoke(play)
    client, arn = play["bedrock-agentcore"], play.cloud.runtime_arn(RUNTIME)
    stopped = client.stop_runtime_session(agentRuntimeArn=arn, runtimeSessionId=SESSION)
    assert stopped["runtimeSessionId"] == SESSION
    with refused("ResourceNotFoundException", SESSION):
        client.stop_runtime_session(agentRuntimeArn=arn, runtimeSessionId=SESSION)
