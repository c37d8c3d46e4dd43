"""What AWS clients raise, as our errors."""

import socket

import pytest
from botocore.exceptions import ClientError

from rft_agent_sdk.errors import CloudError, CredentialsError, UsageError
from rft_agent_sdk.mtrl.aws import Clients, told
from tests.mtrl.cloud import account

__all__ = ["account"]


def refusal(code, status):
    """What botocore raises for an answer, as our error."""
    answer = {
        "Error": {"Code": code, "Message": "for a reason"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    with pytest.raises(CloudError) as raised, told("apps cannot be listed"):
        raise ClientError(answer, "ListMlflowApps")
    return raised.value


@pytest.mark.parametrize(
    ("error", "status", "is_transient", "is_missing"),
    [
        ("ThrottlingException", 400, True, False),
        ("Anything", 503, True, False),
        ("Anything", 429, True, False),
        ("ResourceNotFound", 400, False, True),
        ("Anything", 404, False, True),
        ("AccessDeniedException", 400, False, False),
        ("ResourceLimitExceeded", 400, False, False),
    ],
)
def test_a_refusal_says_whether_another_try_may_help(error, status, is_transient, is_missing):
    found = refusal(error, status)
    assert str(found) == f"apps cannot be listed: {error}: for a reason (ListMlflowApps)"
    assert (found.code, found.is_transient, found.is_missing) == (error, is_transient, is_missing)


def test_a_refusal_of_a_service_comes_with_its_code_and_words(account):
    account.cloud.faults.add("sagemaker", "ListMlflowApps", "Denied", message="not you")
    with pytest.raises(CloudError, match="x: Denied: not you") as raised, told("x"):
        account.clients("sagemaker").list_mlflow_apps()
    assert raised.value.code == "Denied"


def test_a_connection_that_fails_is_worth_another_try(account, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address[0]}:{address[1]}")
    with (
        Clients("us-west-2") as clients,
        pytest.raises(CloudError, match="Could not connect") as raised,
        told("x"),
    ):
        clients("sagemaker").list_mlflow_apps()
    assert raised.value.is_transient


def test_a_parameter_that_no_service_takes_is_not(account):
    with pytest.raises(CloudError) as raised, told("x"):
        account.clients("sagemaker").describe_job(JobName="")
    assert not raised.value.is_transient


def test_without_credentials_it_says_how_to_give_them(account, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with (
        Clients("us-west-2") as clients,
        pytest.raises(CredentialsError, match="AWS_PROFILE"),
        told("x"),
    ):
        clients("sagemaker").list_mlflow_apps()


def test_a_region_is_the_one_given_or_the_environment_s_and_must_be(account, monkeypatch):
    with Clients("eu-west-1") as clients:
        assert clients.region == "eu-west-1"
    with Clients() as clients:
        assert clients.region == "us-west-2"
        assert clients("sagemaker") is clients("sagemaker")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with Clients() as clients, pytest.raises(UsageError, match="say --region or set AWS_REGION"):
        clients("sagemaker")
