"""The guards around every test do guard."""

import os
import socket

import pytest
from botocore.session import Session

from tests.conftest import NetworkUsed


def test_a_connection_beyond_loopback_is_refused(loopback_only):
    with socket.socket() as outside, pytest.raises(NetworkUsed, match=r"192\.0\.2\.1"):
        outside.connect(("192.0.2.1", 80))
    assert loopback_only == ["connect to '192.0.2.1'"]
    loopback_only.clear()


def test_a_name_beyond_loopback_is_not_looked_up(loopback_only):
    with pytest.raises(NetworkUsed, match=r"sagemaker\.us-west-2"):
        socket.create_connection(("job-runtime.sagemaker.us-west-2.api.aws", 443))
    loopback_only.clear()


def test_a_loopback_connection_passes():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert client.getpeername() == server.getsockname()


def test_no_settings_of_the_person_running_the_tests_are_seen():
    kept = {"AWS_EC2_METADATA_DISABLED", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}
    seen = {name for name in os.environ if name.startswith(("AWS_", "RFT_", "OPENAI_"))}
    assert seen == kept


def test_botocore_finds_no_credentials():
    assert Session().get_credentials() is None
