"""What holds for every test: a clean environment, and no network but this machine's loopback."""

import os
import signal
import socket
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, and no time limit on one: what passes here passes on a busy machine.
settings.register_profile("project", derandomize=True, database=None, deadline=None)
settings.load_profile("project")

# Whoever starts the tests in the background, or under nohup, has these ignored: by what a test starts, too.
for _ended_by in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_ended_by) is signal.SIG_IGN:
        signal.signal(
            _ended_by,
            signal.default_int_handler if _ended_by is signal.SIGINT else signal.SIG_DFL,
        )

CLEARED = (
    "AWS_",
    "RFT_",
    "REASONING_",
    "ROLLOUT_",
    "OPENAI_",
    "ANTHROPIC_",
    "OTEL_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
)
LOOPBACK = {"127.0.0.1", "::1", "localhost", "", None}


class NetworkUsed(AssertionError):
    """A test tried to leave this machine."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape what tests logged of broken texts: a report has to travel between processes as UTF-8."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def clean_environment(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory
) -> None:
    """No setting, key or proxy of whoever runs the tests reaches them; AWS clients find no credentials."""
    if request.node.get_closest_marker("aws"):
        return
    for name in list(os.environ):
        if name.upper().startswith(CLEARED):
            monkeypatch.delenv(name)
    absent: Path = tmp_path_factory.getbasetemp() / "absent"
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(absent / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(absent / "credentials"))


@pytest.fixture(autouse=True)
def loopback_only(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """Refuse connections and name lookups beyond loopback, and fail the test that tried.

    The code under test may turn the refusal into an outcome of its own, so every attempt is also
    remembered and checked at the end. Yields the attempts so far.
    """
    attempts: list[str] = []
    if request.node.get_closest_marker("aws"):
        yield attempts
        return

    def check(host: object, action: str) -> None:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in LOOPBACK:
            attempts.append(f"{action} {name!r}")
            raise NetworkUsed(f"tests use 127.0.0.1 only, this one tried to {action} {name!r}")

    connect, connect_ex, getaddrinfo = (
        socket.socket.connect,
        socket.socket.connect_ex,
        socket.getaddrinfo,
    )

    def checked_connect(self, address):
        if self.family != socket.AF_UNIX:
            check(address[0], "connect to")
        return connect(self, address)

    def checked_connect_ex(self, address):
        if self.family != socket.AF_UNIX:
            check(address[0], "connect to")
        return connect_ex(self, address)

    def checked_getaddrinfo(host, *args, **kwargs):
        check(host, "look up")
        return getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", checked_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", checked_connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", checked_getaddrinfo)
    yield attempts
    assert not attempts, f"the test left this machine: {attempts}"


@pytest.fixture(autouse=True)
def fresh_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts as a new process would: no token cached, no credentials loaded."""
    from rft_agent_sdk import auth, credentials

    monkeypatch.setattr(auth, "_sessions", {})
    monkeypatch.setattr(credentials, "_shared_credentials", credentials.SharedCredentials())
