"""The machine that deploys the agent and launches the job."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.mtrl.findings import Finding

MIN_PYTHON = (3, 11)
MIN_BOTOCORE = (1, 43, 37)
"""The first release with the operations of AgentRFT jobs."""
MIN_NODE = 20
_TOOL_S = 20.0
_AWS_HOSTS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def python_version(setup: Setup) -> Answer:
    """See that this Python runs the package."""
    text = ".".join(map(str, setup.python))
    if tuple(setup.python) >= MIN_PYTHON:
        return f"Python {text}"
    return problem(
        f"Python is {text}; wanted 3.11 or newer", "Make a new environment: uv venv --python 3.12."
    )


def package_versions(setup: Setup) -> Answer:
    """See that what is installed is what the package asks for."""
    wanted = _requirements(setup)
    findings = []
    for name, specifier in wanted.items():
        version = setup.version(name)
        if version is None:
            findings.append(
                problem(
                    f"{name}{specifier} is not installed",
                    f"Install it: pip install '{name}{specifier}'.",
                    name,
                )
            )
        elif not _fits(version, specifier):
            findings.append(
                problem(
                    f"{name} is {version}; wanted {specifier}",
                    f"Install it: pip install '{name}{specifier}'.",
                    name,
                )
            )
    return findings or f"{len(wanted)} packages as wanted"


def botocore_agentrft(setup: Setup) -> Answer:
    """See that botocore knows AgentRFT jobs."""
    version = setup.version("botocore")
    if version is None:
        return problem("botocore is not installed", "Install it: pip install 'botocore>=1.43.37'.")
    if _numbers(version) < MIN_BOTOCORE:
        return problem(
            f"botocore is {version}, which has no CreateJob; AgentRFT jobs came with 1.43.37",
            "Upgrade it: pip install -U 'botocore>=1.43.37' (boto3 pins its botocore: upgrade both).",
        )
    return f"botocore {version}"


def node(setup: Setup) -> Answer:
    """See that Node runs the AgentCore CLI."""
    version = _said(setup, "node")
    fix = "Install Node 20 or newer; the AgentCore CLI runs on it."
    if version is None:
        return _for_deploying(setup, "there is no node on PATH", fix)
    found = re.match(r"v?(\d+)", version)
    if found is None or int(found[1]) < MIN_NODE:
        return _for_deploying(setup, f"node is {version[:40]!r}; wanted 20 or newer", fix)
    return f"Node {version}"


def agentcore_cli(setup: Setup) -> Answer:
    """See that `agentcore` is the CLI that deploys, and not its predecessor of the same name."""
    fix = "Install it: npm install -g @aws/agentcore."
    path = _which(setup, "agentcore")
    if path is None:
        return _for_deploying(setup, "there is no agentcore on PATH", fix)
    if _is_python_script(path):
        return _for_deploying(
            setup,
            f"{path} is the retired Python starter toolkit, which has the same name and another project format",
            "Uninstall it: pip uninstall bedrock-agentcore-starter-toolkit; then npm install -g @aws/agentcore.",
        )
    version = _said(setup, "agentcore")
    if version is None:
        return _for_deploying(setup, f"{path} --version fails", fix)
    return f"agentcore {version}"


def uv_on_path(setup: Setup) -> Answer:
    """See that `uv` is there, with which the CLI packs the agent."""
    version = _said(setup, "uv")
    if version is None:
        return _for_deploying(
            setup,
            "there is no uv on PATH; `agentcore package` and `deploy` pack the agent with it",
            "Install it: pip install uv, and see that its folder is on PATH.",
        )
    return version


def aws_region(setup: Setup) -> Answer:
    """See that everything that names a region names the same."""
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    voices = {name: setup.environ.get(name, "").strip() for name in names}
    named = {where: region for where, region in voices.items() if region}
    told = ", ".join(f"{where} says {region}" for where, region in named.items())
    job = setup.job_region()
    if len(set(named.values())) > 1:
        return problem(
            f"{told}: boto3 reads the latter, and what signs bearer tokens the former",
            "Make them agree: export both with the job's region, or unset both.",
        )
    if job is None:
        return warning("nothing names a region", "Export AWS_REGION with the job's region.")
    if set(named.values()) - {job}:
        return warning(
            f"{told}, but the job's region is {job}: what is not told a region goes elsewhere",
            f"Export AWS_REGION={job} and AWS_DEFAULT_REGION={job}.",
        )
    if not voices["AWS_REGION"]:
        return warning(
            f"the job's region is {job}, but AWS_REGION is not set, and what signs bearer tokens reads nothing else",
            f"Export AWS_REGION={job}.",
        )
    return f"{told}, the job's region is {job}"


def proxies(setup: Setup) -> Answer:
    """See whether a proxy stands between here and AWS."""
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    found = {name: setup.environ[name] for name in names if setup.environ.get(name)}
    if not found:
        return "no proxy"
    told = ", ".join(f"{name}={_without_user(value)}" for name, value in found.items())
    return warning(
        f"{told}: an allow-list of *.amazonaws.com is not enough, since the Job Runtime is at *.api.aws; "
        "an agent of this package asks it directly, without a proxy",
        "Let the proxy pass *.amazonaws.com and *.api.aws; agents need a direct way out to *.api.aws.",
    )


def ca_bundle(setup: Setup) -> Answer:
    """See that the CA bundles that variables name are there."""
    names = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
    named = {name: setup.environ[name] for name in names if setup.environ.get(name)}
    missing = [
        problem(
            f"{name} names {path!r}, which is no file",
            f"Unset {name}, or name the bundle's file.",
            name,
        )
        for name, path in named.items()
        if not Path(path).is_file()
    ]
    return missing or (f"{', '.join(named)} as named" if named else "the usual one")


def aws_endpoints(setup: Setup) -> Answer:
    """Tell where calls go if not to AWS."""
    named = {
        name: value
        for name, value in sorted(setup.environ.items())
        if value and (name.startswith("AWS_ENDPOINT_URL") or name == "RFT_RUNTIME_ENDPOINT")
    }
    if not named:
        return "AWS's own"
    odd = {
        name: value
        for name, value in named.items()
        if value.rstrip("/") not in setup.endpoints and not _is_aws(value)
    }
    if not odd:
        return f"{_listed(named)}: AWS's, or as meant"
    here = (
        "; what answers on this machine stands in for AWS, so that the other checks say nothing of the account that "
        "a job would be launched in"
        if any(map(_is_loopback, odd.values()))
        else ""
    )
    return warning(
        f"{_listed(odd)}: calls go there and not to AWS's own endpoints{here}",
        "Unset these; name those that are meant with --endpoint URL.",
    )


def clock_skew(setup: Setup) -> Answer:
    """See that this machine's clock is right: a signature is good for five minutes around its time."""
    skew = setup.measured_skew_s()
    if skew is None:
        raise Skipped("the service's answer had no date", "Compare the clock yourself: date -u.")
    told = f"this machine's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the service's"
    fix = "Set the clock, best by NTP: timedatectl set-ntp true."
    if abs(skew) >= 300:
        return problem(f"{told}; signatures are refused from 300 s on", fix)
    return (
        warning(f"{told}; signatures are refused from 300 s on", fix) if abs(skew) >= 60 else told
    )


CHECKS = (
    Check("python-version", "Python runs the package", python_version),
    Check("package-versions", "What is installed is what the package asks for", package_versions),
    Check(
        "botocore-agentrft",
        "botocore is 1.43.37 or newer, which knows AgentRFT jobs",
        botocore_agentrft,
    ),
    Check("node", "Node is 20 or newer", node),
    Check("agentcore-cli", "`agentcore` is the CLI @aws/agentcore", agentcore_cli),
    Check("uv", "uv is on PATH, to pack the agent", uv_on_path),
    Check("aws-region", "All that name a region name the same", aws_region),
    Check("proxies", "No proxy stands in the way of *.api.aws", proxies),
    Check("ca-bundle", "CA bundles that are named exist", ca_bundle),
    Check("aws-endpoints", "Calls go to AWS", aws_endpoints),
    Check(
        "clock-skew",
        "The clock is right, so that signatures are accepted",
        clock_skew,
        ("credentials",),
    ),
)


def _for_deploying(setup: Setup, message: str, fix: str) -> Finding:
    """Return what stands in the way of a deployment: none is needed where an agent was named."""
    if setup.agent:
        return warning(f"{message}; it is needed to deploy the agent anew", fix)
    return problem(message, fix)


def _which(setup: Setup, name: str) -> str | None:
    return shutil.which(name, path=setup.environ.get("PATH", ""))


def _said(setup: Setup, name: str) -> str | None:
    """Return the first line that a tool says of its version, or `None` where it is not there or fails."""
    path = _which(setup, name)
    if path is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - what PATH has under that name, as a shell would
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_TOOL_S,
            check=True,
            env=dict(setup.environ),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split("\n")), "").strip()[:80]


def _is_python_script(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a name of PATH
            start = file.readline(200)
    except OSError:
        return False
    return start.startswith(b"#!") and b"python" in start


def _requirements(setup: Setup) -> dict[str, str]:
    """Return what the package asks for, extras aside."""
    try:
        texts = importlib.metadata.requires("rft-agent-sdk") or []
    except importlib.metadata.PackageNotFoundError:
        raise Skipped(
            "the package is not installed, only on the path", "Install it: pip install -e ."
        ) from None
    return dict(_plain(texts))


def _plain(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        requirement, _, marker = text.partition(";")
        found = re.fullmatch(r"([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*(.*)", requirement.strip())
        if found and not marker.strip():
            yield found[1], found[2].strip()


def _fits(version: str, specifier: str) -> bool:
    """Whether a version fits; of the operators those that the package's own requirements use."""
    here = _numbers(version)
    for part in filter(None, map(str.strip, specifier.split(","))):
        operator, limit = (part[:2], part[2:]) if part[1] == "=" else (part[:1], part[1:])
        wanted = _numbers(limit)
        holds = {
            ">=": here >= wanted,
            "<": here < wanted,
            "==": here == wanted,
            "<=": here <= wanted,
            ">": here > wanted,
        }
        if not holds.get(operator, True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _without_user(url: str) -> str:
    """Return a URL without what may be a password."""
    scheme, sign, rest = url.partition("://")
    netloc, slash, path = rest.partition("/") if sign else (url, "", "")
    shown = netloc.rpartition("@")[2]
    return f"{scheme}{sign}{shown}{slash}{path.partition('?')[0]}"[:100] if sign else shown[:100]


def _listed(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={_without_user(value)}" for name, value in named.items())


def _is_aws(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and (parts.hostname or "").endswith(_AWS_HOSTS)


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
