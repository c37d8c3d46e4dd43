"""Where a rollout's policy is, and what may be sent there.

A payload is untrusted, and a bearer token is a capability of the agent's whole identity. So a token
goes to the Job Runtime's own hosts, or to hosts that the operator allows: by
`RFT_ALLOW_ENDPOINT_HOSTS` (comma-separated `host` or `host:port`; `host` alone means each of its
ports), by `allow_hosts`, or by `RFT_RUNTIME_ENDPOINT`, since that variable is the operator's own
word. A payload alone can send it nowhere else, not even to loopback. Tokens travel by https; by http
on loopback only.

A gateway's `_config` gets its own key and nothing else. It may use http on loopback and on private
*addresses*. A DNS name counts as public, also one that looks private (`gateway.internal`): what it
resolves to is not known here; `RFT_ALLOW_ENDPOINT_HOSTS` allows http to it.

Link-local addresses, the instance's metadata among them, are refused everywhere. Clients must not
follow redirects: only the host checked here was checked.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from rft_agent_sdk.auth import BearerTokenSession, KeyAuth, bearer_session
from rft_agent_sdk.errors import EndpointError
from rft_agent_sdk.payload import GatewayAddress, JobAddress, RolloutRequest
from rft_agent_sdk.region import job_runtime_region, resolve_region

ALLOW_HOSTS = "RFT_ALLOW_ENDPOINT_HOSTS"
RUNTIME_ENDPOINT = "RFT_RUNTIME_ENDPOINT"

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[0-9a-z._-]+)(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<path>(?:/[0-9a-z._~!$&'()*+,;=:@%-]*)*)",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[0-9a-z]([0-9a-z_-]{0,61}[0-9a-z])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ENTRY = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::(?P<port>[0-9]{1,5}))?")
_LINK_LOCAL = tuple(
    ipaddress.ip_network(net) for net in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32")
)
"""The last of them holds the IPv6 addresses of instance metadata and pod credentials."""
_PRIVATE = tuple(
    ipaddress.ip_network(net)
    for net in (
        "0.0.0.0/32",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::/127",
        "fc00::/7",
    )
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A policy endpoint that was checked, and what its requests carry."""

    kind: Literal["job_runtime", "gateway"]
    root: str
    """Base of CompleteRollout and UpdateReward: no trailing slash, no `/v1`."""
    model_id: str
    """`model` of a chat completion; `default` in a job."""
    headers: Mapping[str, str]
    """Headers that tie each request to its rollout; none at a gateway, whose key is the session."""
    auth: BearerTokenSession | KeyAuth = field(repr=False, compare=False)

    @property
    def base_url(self) -> str:
        """Return the OpenAI base URL."""
        return f"{self.root}/v1"


def resolve_endpoint(
    request: RolloutRequest,
    *,
    environ: Mapping[str, str] | None = None,
    allow_hosts: Iterable[str] = (),
    sessions: Callable[[str], BearerTokenSession] = bearer_session,
) -> Endpoint:
    """Return the endpoint of a rollout, checked; opens no connection and loads no credentials.

    Args:
        request: A gateway rollout goes to its `_config`. A managed one goes to the payload's
            endpoint, else `RFT_RUNTIME_ENDPOINT`, else the Job Runtime of its region.
        environ: Environment variables; `None` reads the process's own.
        allow_hosts: Hosts allowed beside those of `RFT_ALLOW_ENDPOINT_HOSTS`, spelled alike.
        sessions: Gives the bearer-token session of a region.

    Raises:
        EndpointError: The URL is malformed or its host not allowed, or no one region is named.
    """
    environ = os.environ if environ is None else environ
    allowed = [*environ.get(ALLOW_HOSTS, "").split(","), *allow_hosts]
    if request.gateway is not None:
        return _gateway(request.gateway, allowed)
    if request.job is not None:
        return _job_runtime(request.job, environ, allowed, sessions)
    raise EndpointError("the request names neither a job nor a gateway; wanted one of them")


def _gateway(address: GatewayAddress, allowed: Iterable[str]) -> Endpoint:
    url = _parse(address.base_url, "_config.base_url")
    if url.scheme == "http" and not url.is_private and not _is_allowed(url, allowed):
        raise EndpointError(
            f"_config.base_url sends its key to {url.host!r} by http, which is for loopback and "
            f"private addresses: use https, or set {ALLOW_HOSTS}={url.netloc} if that name is "
            "private to your network"
        )
    return Endpoint(
        "gateway", url.root, address.model_id, MappingProxyType({}), KeyAuth(address.api_key)
    )


def _job_runtime(
    job: JobAddress,
    environ: Mapping[str, str],
    allowed: Iterable[str],
    sessions: Callable[[str], BearerTokenSession],
) -> Endpoint:
    configured = environ.get(RUNTIME_ENDPOINT, "").strip()
    given = job.endpoint or configured
    root = None
    if given:
        url = _parse(given, "metadata.endpoint" if job.endpoint else RUNTIME_ENDPOINT)
        _check_bearer(url, configured, allowed)
        root = url.root
    region = resolve_region(endpoint=root, region=job.region, job_arn=job.job_arn, environ=environ)
    headers = {
        "X-Amzn-SageMaker-Job-Arn": job.job_arn,
        "X-Amzn-SageMaker-Trajectory-Id": job.rollout_id,
    }
    return Endpoint(
        "job_runtime",
        root or f"https://job-runtime.sagemaker.{region}.api.aws",
        "default",
        MappingProxyType(headers),
        sessions(region),
    )


def _check_bearer(url: _Url, configured: str, allowed: Iterable[str]) -> None:
    """Raise unless a bearer token may go to this URL."""
    if job_runtime_region(url.root):
        return
    is_configured = configured and _parse(configured, RUNTIME_ENDPOINT).origin == url.origin
    if not is_configured and not _is_allowed(url, allowed):
        raise EndpointError(
            f"{url.where} names host {url.host!r}, but a bearer token goes by https to "
            "job-runtime.sagemaker.<region>.api.aws or to hosts you allow: "
            f"if this one is yours, set {ALLOW_HOSTS}={url.netloc}"
        )
    if url.scheme != "https" and not url.is_loopback:
        raise EndpointError(
            f"{url.where} sends a bearer token to {url.host!r} by http, which is for loopback only; "
            "use https"
        )


@dataclass(frozen=True, slots=True)
class _Url:
    """A URL in parts, each of them checked, so that no client can read another host out of it."""

    where: str
    scheme: str
    host: str
    """Lower case; an IPv6 address without brackets, compressed."""
    port: int
    path: str

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.netloc}"

    @property
    def root(self) -> str:
        return self.origin + self.path

    @property
    def is_loopback(self) -> bool:
        address = _address(self.host)
        return address.is_loopback if address else self.host == "localhost"

    @property
    def is_private(self) -> bool:
        address = _address(self.host)
        return self.is_loopback or (address is not None and any(address in net for net in _PRIVATE))


def _parse(text: str, where: str) -> _Url:
    """Read an http or https URL with a host, perhaps a port and a path, and nothing more.

    One trailing `/v1` and trailing slashes are taken off the path; the rest of it is kept.
    """
    match = _URL.fullmatch(text)
    # What follows `?` or `#` and what precedes `@` can be a secret.
    shown = re.split(r"[?#]", text)[0].rpartition("@")[2][:200]
    if match is None:
        raise EndpointError(
            f"{where} must be http(s)://host[:port][/path] in ASCII, without user info, query or "
            f"fragment, got {shown!r}"
        )
    scheme = match["scheme"].lower()
    host = _host(match["host"], where)
    port = int(match["port"] or _PORTS[scheme])
    if not 1 <= port <= 65535:
        raise EndpointError(f"{where} must have a port from 1 to 65535, got {shown!r}")
    path = match["path"].rstrip("/")
    return _Url(where, scheme, host, port, path.removesuffix("/v1").rstrip("/"))


def _host(text: str, where: str) -> str:
    """Return a host name or address in its one normal spelling."""
    host = text.lower()
    if (address := _address(host.strip("[]"))) is not None:
        if any(address in net for net in _LINK_LOCAL):
            raise EndpointError(
                f"{where} names {host!r}, a link-local address such as the instance's metadata has; "
                "these are refused"
            )
        return str(address)
    labels = host.split(".")
    # 127.1, 0x7f000001 and 2130706433 are addresses to some resolvers.
    if _NUMERIC.fullmatch(labels[-1]) or not all(map(_LABEL.fullmatch, labels)):
        raise EndpointError(
            f"{where} must name a host or an address in its usual form, got {host!r}"
        )
    return host


def _address(host: str) -> _IPAddress | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_allowed(url: _Url, allowed: Iterable[str]) -> bool:
    return any(host == url.host and port in (None, url.port) for host, port in _entries(allowed))


def _entries(allowed: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Read `host` and `host:port` entries; `*` and URLs are none."""
    for entry in filter(None, map(str.strip, allowed)):
        text = f"[{entry}]" if entry.count(":") > 1 and "[" not in entry else entry
        match = _ENTRY.fullmatch(text.lower())
        if match is None:
            raise EndpointError(f"{ALLOW_HOSTS} must list host or host:port, got {entry!r}")
        yield _host(match["host"], ALLOW_HOSTS), int(match["port"]) if match["port"] else None
