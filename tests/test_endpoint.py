import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import requests
from hypothesis import example, given
from hypothesis import strategies as st

from rft_agent_sdk.auth import BearerTokenSession, KeyAuth
from rft_agent_sdk.endpoint import Endpoint, resolve_endpoint
from rft_agent_sdk.errors import EndpointError
from rft_agent_sdk.payload import GatewayAddress, JobAddress, RolloutRequest, parse_request

ARN = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/j1"
HOST = "https://job-runtime.sagemaker.us-west-2.api.aws"
SPELLINGS = ("", "/", "/v1", "/v1/")


def no_credentials() -> None:
    raise AssertionError("resolving an endpoint must load no credentials")


def sessions(region: str) -> BearerTokenSession:
    return BearerTokenSession(region, credentials=no_credentials)


def managed(endpoint: str | None = None, *, env=None, allow=(), region=None, arn=ARN) -> Endpoint:
    request = RolloutRequest("go", "go", job=JobAddress(arn, "r1", endpoint, region))
    return resolve_endpoint(request, environ=env or {}, allow_hosts=allow, sessions=sessions)


def gateway(base_url: str, *, env=None, allow=()) -> Endpoint:
    request = RolloutRequest("go", "go", gateway=GatewayAddress(base_url, "sk-secret", "m1"))
    return resolve_endpoint(request, environ=env or {}, allow_hosts=allow)


def allowing(*hosts: str) -> dict[str, str]:
    return {"RFT_ALLOW_ENDPOINT_HOSTS": ",".join(hosts)}


# What an endpoint carries


def test_a_managed_rollout_goes_to_the_job_runtime_of_its_region():
    endpoint = managed()
    assert endpoint.kind == "job_runtime"
    assert endpoint.root == HOST
    assert endpoint.base_url == f"{HOST}/v1"
    assert endpoint.model_id == "default"
    assert endpoint.headers == {
        "X-Amzn-SageMaker-Job-Arn": ARN,
        "X-Amzn-SageMaker-Trajectory-Id": "r1",
    }
    assert isinstance(endpoint.auth, BearerTokenSession)
    assert endpoint.auth.region == "us-west-2"


def test_a_gateway_rollout_goes_to_its_gateway_with_its_key_and_no_headers():
    endpoint = gateway("http://127.0.0.1:9000/v1", env={"RFT_RUNTIME_ENDPOINT": HOST})
    assert endpoint.kind == "gateway"
    assert endpoint.root == "http://127.0.0.1:9000"
    assert endpoint.model_id == "m1"
    assert endpoint.headers == {}
    assert isinstance(endpoint.auth, KeyAuth)
    assert "secret" not in repr(endpoint)


def test_the_payload_comes_first_then_the_environment_then_the_region():
    fips = "https://job-runtime.sagemaker-fips.us-west-2.api.aws"
    env = {"RFT_RUNTIME_ENDPOINT": f" {fips}/v1/ "}
    assert managed(HOST, env=env).root == HOST
    assert managed(env=env).root == fips
    assert managed(env={"RFT_RUNTIME_ENDPOINT": " "}).root == HOST


def test_a_parsed_payload_resolves():
    payload = {"prompt": "go", "metadata": {"jobArn": ARN, "rolloutId": "r1", "endpoint": HOST}}
    endpoint = resolve_endpoint(parse_request(payload), environ={}, sessions=sessions)
    assert endpoint.root == HOST


def test_rollouts_of_one_region_share_a_session():
    first, second = (
        resolve_endpoint(RolloutRequest("go", "go", job=JobAddress(ARN, rollout)), environ={})
        for rollout in ("r1", "r2")
    )
    assert first.auth is second.auth
    assert first != second


def test_a_request_without_an_address_is_refused():
    with pytest.raises(EndpointError, match="neither a job nor a gateway"):
        resolve_endpoint(RolloutRequest("go", "go"), environ={})


# The region


def test_the_endpoint_s_region_is_signed_for_whatever_the_environment_says():
    east = "https://job-runtime.sagemaker.us-east-1.api.aws"
    endpoint = managed(east, env={"AWS_REGION": "us-west-2"}, arn="test")
    assert endpoint.auth.region == "us-east-1"  # type: ignore[union-attr]


def test_an_endpoint_in_another_region_than_the_job_is_refused():
    with pytest.raises(EndpointError, match=r"us-east-1.*us-west-2"):
        managed("https://job-runtime.sagemaker.us-east-1.api.aws")
    with pytest.raises(EndpointError, match=r"us-east-1.*us-west-2"):
        managed(env={"RFT_RUNTIME_ENDPOINT": "https://job-runtime.sagemaker.us-east-1.api.aws"})


def test_no_region_is_an_error_before_any_connection(loopback_only):
    with pytest.raises(EndpointError, match="no AWS region"):
        managed(arn="test")
    assert managed(arn="test", env={"AWS_DEFAULT_REGION": "eu-west-1"}).root.endswith(
        "eu-west-1.api.aws"
    )
    assert not loopback_only


def test_a_region_cannot_smuggle_a_host_into_the_default_endpoint():
    with pytest.raises(EndpointError, match="must name an AWS region"):
        managed(arn="test", region="us-west-2.evil.example/")


# Base URLs


@pytest.mark.parametrize("tail", SPELLINGS)
def test_one_v1_and_slashes_are_taken_off_and_put_on_once(tail):
    assert managed(HOST + tail).base_url == f"{HOST}/v1"
    assert gateway("https://h" + tail).base_url == "https://h/v1"
    assert gateway("https://h" + tail).root == "https://h"


@pytest.mark.parametrize("empty", [None, ""])
def test_no_endpoint_never_gives_a_bare_v1(empty):
    assert managed(empty).base_url == f"{HOST}/v1"
    with pytest.raises(EndpointError, match="must be http"):
        gateway("")


def test_another_path_is_kept():
    assert gateway("https://h/stage/v1/").base_url == "https://h/stage/v1"
    assert gateway("https://h/v1/x").base_url == "https://h/v1/x/v1"
    assert gateway("https://h/v10").base_url == "https://h/v10/v1"
    assert gateway("https://h/v1/v1").root == "https://h/v1"


HOSTS = st.sampled_from(
    ["h", "a.example", "10.0.0.5", "[::1]", "a_b.c-d.example", "xn--9ca.example"]
)
PATHS = st.text("v1/ab.-_~%2F", max_size=12).map(lambda text: "/" + text)


@given(host=HOSTS, port=st.none() | st.integers(1, 65535), path=PATHS | st.just(""))
@example(host="h", port=443, path="//v1//")
def test_a_base_url_resolves_to_itself_and_keeps_its_host(host, port, path):
    url = f"https://{host}" + (f":{port}" if port else "") + path
    endpoint = gateway(url)
    assert gateway(endpoint.base_url) == endpoint
    assert endpoint.base_url == f"{endpoint.root}/v1"
    assert not endpoint.root.endswith("/")
    there = httpx.URL(endpoint.base_url)
    assert there.raw_host.decode() == host.strip("[]")
    assert (there.port or 443) == (port or 443)


@given(
    st.text(
        st.characters(max_codepoint=0x24F) | st.sampled_from("/:@?#\\.%[]\u3002\uff0f"), max_size=30
    )
)
@example("https://job-runtime.sagemaker.us-west-2.api.aws@evil.example")
@example("https://evil.example\\@job-runtime.sagemaker.us-west-2.api.aws")
def test_whatever_is_accepted_for_a_token_is_the_host_both_clients_go_to(tail):
    for text in (tail, "https://" + tail, HOST + tail):
        try:
            endpoint = managed(text) if text else None
        except EndpointError:
            continue
        if endpoint is not None:
            assert httpx.URL(endpoint.base_url).host == HOST.removeprefix("https://")
            prepared = requests.Request("POST", endpoint.base_url).prepare()
            assert (prepared.url or "").startswith(f"{HOST}/")


# Where a bearer token may go


@pytest.mark.parametrize(
    "url",
    [
        HOST,
        HOST + ":443",
        HOST + ":",
        HOST.upper().replace("HTTPS", "HTTPS"),
        "https://job-runtime.sagemaker-fips.us-west-2.api.aws",
    ],
)
def test_the_job_runtime_s_own_hosts_need_no_permission(url):
    assert managed(url).root == url.lower().removesuffix(":443").rstrip(":")


REFUSED = [
    "https://evil.example/v1",
    "http://127.0.0.1:8080",
    "https://127.0.0.1",
    "http://localhost:8080",
    "https://10.0.0.5",
    "http://job-runtime.sagemaker.us-west-2.api.aws",
    HOST + ":8443",
    HOST + ":80",
    HOST + ".evil.example",
    HOST.replace("job-", "x-job-"),
    HOST.replace("https://", "https://x."),
    HOST.replace("us-west-2", "uswest2"),
    HOST.replace("us-west-2", "us-west-2.evil"),
    HOST.replace("us-west-2", "a.us-west-2"),
    HOST.replace(".", "-"),
    "https://job-runtime.sagemaker.us-west-2.amazonaws.com",
    "https://xn--9ca.sagemaker.us-west-2.api.aws",
]
MALFORMED = [
    HOST + ".",
    HOST.replace("sagemaker", "\u017fagemaker"),
    HOST.replace("sagemaker", "sagema\u212aer"),
    HOST.replace(".", "\u3002"),
    HOST + "\u2044.evil.example",
    HOST + "@evil.example",
    HOST.replace("https://", "https://user:pw@"),
    HOST.replace("https://", "https:/"),
    HOST.replace("https://", "//"),
    HOST.replace("https://", "ftp://"),
    HOST.replace("https://", "https:\\\\"),
    HOST.removeprefix("https://"),
    HOST + "?x=1",
    HOST + "/v1#x",
    HOST + "\\@evil.example",
    HOST + "\n",
    HOST + "/a b",
    " " + HOST,
    HOST + "\t.evil.example",
    HOST + "%2eevil.example",
    HOST + ":0",
    HOST + ":65536",
    HOST + ":443443",
    HOST + ":٤٤٣",
    HOST.replace("sagemaker", ""),
    "https://",
    "https:///v1",
    "https://[::1",
    "https://[fe80::1%eth0]",
    "https://[dead]",
    "https://-a.example",
]


@pytest.mark.parametrize("url", REFUSED)
def test_a_token_goes_nowhere_else_on_a_payload_s_word(url):
    with pytest.raises(EndpointError, match="RFT_ALLOW_ENDPOINT_HOSTS") as caught:
        managed(url)
    assert httpx.URL(url).raw_host.decode() in str(caught.value)
    with pytest.raises(EndpointError):
        managed(url, env={"RFT_RUNTIME_ENDPOINT": HOST, **allowing("other.example", "10.0.0.6")})


@pytest.mark.parametrize("url", MALFORMED)
def test_a_url_that_could_be_read_two_ways_is_refused_even_where_its_host_is_allowed(url):
    with pytest.raises(EndpointError, match="must"):
        managed(url, env=allowing("evil.example", "127.0.0.1"))
    with pytest.raises(EndpointError, match="must"):
        gateway(url)


def test_a_refusal_shows_no_secret_of_the_url():
    for url in ("https://user:hunter2@h/" + "a" * 300, "https://h/?key=hunter2", "https://h/#hunter2",
                "https://" + "u" * 300 + ":hunter2@h"):  # fmt: skip
        with pytest.raises(EndpointError) as caught:
            managed(url)
        assert "hunter2" not in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("http://localhost:8080", " LOCALHOST:8080 "),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://[0:0::1]:8080", "::1"),
        ("https://proxy.example", "proxy.example"),
        ("https://Proxy.example", "proxy.example:443"),
        ("https://proxy.example:8443", "proxy.example:8443"),
        ("https://10.0.0.5/v1", "10.0.0.5"),
    ],
)
def test_a_host_the_operator_allows_is_allowed(url, entry):
    assert managed(url, env=allowing("a.example", "", entry)).base_url.endswith("/v1")
    assert managed(url, allow=[entry]).base_url.endswith("/v1")


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8081"),
        ("http://127.0.0.1:8080", "127.0.0.2"),
        ("https://a.proxy.example", "proxy.example"),
        ("https://proxy.example:8443", "proxy.example:443"),
        ("https://proxy.example.evil", "proxy.example"),
    ],
)
def test_an_entry_allows_its_own_host_and_port_only(url, entry):
    with pytest.raises(EndpointError, match="names host"):
        managed(url, env=allowing(entry))


@pytest.mark.parametrize(
    "entry", ["*", "*.example", "https://h", "h/v1", "h:x", "h:", "a b", "user@h", "[::1"]
)
def test_an_entry_that_is_no_host_is_refused(entry):
    with pytest.raises(EndpointError, match="RFT_ALLOW_ENDPOINT_HOSTS must"):
        managed("https://h", env=allowing(entry))


def test_a_token_goes_by_http_to_loopback_only_even_where_allowed():
    for url in ("http://10.0.0.5:8080", "http://proxy.example"):
        with pytest.raises(EndpointError, match="by http"):
            managed(url, env=allowing("10.0.0.5", "proxy.example"))
        with pytest.raises(EndpointError, match="by http"):
            managed(env={"RFT_RUNTIME_ENDPOINT": url})


def test_the_operator_s_own_endpoint_is_allowed_to_payloads_that_name_it():
    env = {"RFT_RUNTIME_ENDPOINT": "http://127.0.0.1:8080/v1"}
    assert managed(env=env).root == "http://127.0.0.1:8080"
    assert managed("http://127.0.0.1:8080/", env=env).root == "http://127.0.0.1:8080"
    for other in ("http://127.0.0.1:8081", "https://127.0.0.1:8080"):
        with pytest.raises(EndpointError, match="names host"):
            managed(other, env=env)


def test_no_request_with_a_token_reaches_a_host_a_payload_names_until_it_is_allowed():
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            tokens.append(self.headers["Authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    def rollout(url: str, env: dict[str, str]) -> None:
        endpoint = managed(url, env=env)
        with httpx.Client(auth=BearerTokenSession("us-west-2", credentials=keys)) as client:
            client.post(f"{endpoint.base_url}/chat/completions", json={}, headers=endpoint.headers)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(EndpointError):
            rollout(url, {})
        refused = list(tokens)
        rollout(url, allowing(f"127.0.0.1:{server.server_port}"))
        server.shutdown()
        thread.join()
    assert not refused
    assert [str(token)[:25] for token in tokens] == ["Bearer sagemaker-api-key-"]


def keys():
    from botocore.credentials import Credentials

    return Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


# Where a gateway's key may go


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9000",
        "http://localhost:9000",
        "http://[::1]:9000",
        "http://10.1.2.3",
        "http://172.16.0.1",
        "http://192.168.1.1",
        "http://100.64.0.9",
        "http://[fd12::1]",
        "http://[::ffff:10.0.0.5]",
        "http://0.0.0.0:9000",
        "https://gateway.example",
        "https://8.8.8.8",
    ],
)
def test_a_gateway_may_use_http_on_private_addresses_and_https_anywhere(url):
    assert gateway(url).base_url.endswith("/v1")


@pytest.mark.parametrize(
    "url",
    [
        "http://gateway.example",
        "http://8.8.8.8",
        "http://172.32.0.1",
        "http://gateway.internal:9000",
        "http://ip-10-0-0-5.ec2.internal",
        "http://gateway",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "http://10.0.0.5.nip.io",
        "http://[2001:db8::1]",
        "http://[::ffff:8.8.8.8]",
    ],
)
def test_a_gateway_with_a_public_host_must_use_https_unless_the_operator_allows_it(url):
    with pytest.raises(EndpointError, match=r"by http.*RFT_ALLOW_ENDPOINT_HOSTS"):
        gateway(url)
    host = httpx.URL(url).host
    entry = f"[{host}]" if ":" in host else host
    assert gateway(url, env=allowing(entry)).base_url.endswith("/v1")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "169.254.170.2", "[fe80::1]", "[fd00:ec2::254]", "[fd00:ec2::23]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]"],
)  # fmt: skip
def test_link_local_addresses_are_refused_even_where_allowed(scheme, host):
    url = f"{scheme}://{host}/latest"
    for resolve in (gateway, managed):
        with pytest.raises(EndpointError, match="link-local"):
            resolve(url, allow=[host])
    with pytest.raises(EndpointError, match="link-local"):
        managed(env={"RFT_RUNTIME_ENDPOINT": url})


@pytest.mark.parametrize(
    "host", ["2852039166", "0xa9fea9fe", "0xa9.254.0xa9.254", "169.254.43518", "127.1", "0177.0.0.1", "1.2.3.4.5", "a.0x7f"]
)  # fmt: skip
def test_addresses_in_unusual_forms_are_refused(host):
    with pytest.raises(EndpointError, match="usual form"):
        gateway(f"https://{host}")
