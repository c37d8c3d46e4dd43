"""The tracking server behind an MLflow app: experiments, runs and metrics, reading only over HTTP.

A signed request reaches it at the custom endpoint of `sagemaker-mlflow`; an unsigned one by a presigned URL,
which leaves a cookie.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, RedirectResponse, Response

from rft_agent_sdk.twins.cloud.wire.received import Received
from rft_agent_sdk.types import JSON

_API = re.compile(r"(?P<app>/mlflow/[\w-]+)?/api/2\.0/mlflow/(?P<method>[\w/-]+)")
_ENTRY = re.compile(r"(/mlflow/[\w-]+)(/auth|/)?")
_RUN_NAME = re.compile(r"""(?:tags\.)?[`"]?(?:mlflow\.runName|run_name)[`"]?\s*=\s*["'](.+)["']""")
_COOKIE = "mlflow-session=EXAMPLE"
_MISSING = "RESOURCE_DOES_NOT_EXIST"


class _NotFound(Exception):
    """There is nothing of that name."""


@dataclass(slots=True)
class MlflowRun:
    """A run and its metrics."""

    run_id: str
    name: str
    experiment_id: str
    start_ms: int
    metrics: dict[str, list[tuple[int, float, int]]] = field(default_factory=dict)
    """Points of each metric: step, value, time in milliseconds."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each of several metrics."""
        moment = _now_ms()
        for name, value in values.items():
            self.metrics.setdefault(name, []).append((step, value, moment))


class MlflowStore:
    """Experiments by name, and runs by id."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.experiments: dict[str, str] = {}
        """Experiment ids by name."""
        self.runs: dict[str, MlflowRun] = {}
        """By run id."""
        self._methods: dict[str, Callable[[JSON], JSON]] = {
            "experiments/get-by-name": self._experiment_by_name,
            "runs/get": self._run,
            "runs/search": self._search,
            "metrics/get-history": self._history,
        }

    def make_run(self, experiment: str, name: str) -> MlflowRun:
        """Return a new run; its experiment is made where there is none."""
        with self._lock:
            experiment_id = self.experiments.setdefault(experiment, str(len(self.experiments) + 1))
            run = MlflowRun(secrets.token_hex(16), name, experiment_id, _now_ms())
            self.runs[run.run_id] = run
            return run

    def answer(self, received: Received) -> Response | None:
        """Return the answer to a request, `None` where it is not for an MLflow app."""
        match = _API.fullmatch(received.path)
        if match is None:
            return _enter(received)
        is_signed = "aws4_request" in received.headers.get("authorization", "")
        if not is_signed and _COOKIE not in received.headers.get("cookie", ""):
            return JSONResponse({"error_code": "PERMISSION_DENIED"}, status_code=403)
        method = self._methods.get(match["method"])
        if method is None:
            return _refused("ENDPOINT_NOT_FOUND", f"{match['method']} is not served here")
        asked = json.loads(received.body) if received.method == "POST" else received.query
        try:
            with self._lock:
                return JSONResponse(method(asked))
        except _NotFound as error:
            return _refused(_MISSING, f"{error} does not exist")

    def _experiment_by_name(self, asked: JSON) -> JSON:
        name = asked.get("experiment_name", "")
        if name not in self.experiments:
            raise _NotFound(f"experiment {name!r}")
        found = {"experiment_id": self.experiments[name], "name": name, "lifecycle_stage": "active"}
        return {"experiment": found}

    def _run(self, asked: JSON) -> JSON:
        return {"run": _described(self._found(asked))}

    def _search(self, asked: JSON) -> JSON:
        named = _RUN_NAME.search(asked.get("filter", ""))
        found = [
            run
            for run in reversed(self.runs.values())
            if run.experiment_id in asked.get("experiment_ids", ())
            and (named is None or run.name == named[1])
        ]
        return {"runs": [_described(run) for run in found[: int(asked.get("max_results", 1000))]]}

    def _history(self, asked: JSON) -> JSON:
        points = self._found(asked).metrics.get(asked.get("metric_key", ""), [])
        return {"metrics": [_point(asked["metric_key"], *point) for point in points]}

    def _found(self, asked: JSON) -> MlflowRun:
        run_id = asked.get("run_id") or asked.get("run_uuid", "")
        if run_id not in self.runs:
            raise _NotFound(f"run {run_id!r}")
        return self.runs[run_id]


def _enter(received: Received) -> Response | None:
    match = _ENTRY.fullmatch(received.path)
    if match is None:
        return None
    if match[2] != "/auth":
        return Response("MLflow", media_type="text/plain")
    if "authToken" not in received.query:
        return JSONResponse({"error_code": "PERMISSION_DENIED"}, status_code=403)
    response = RedirectResponse(f"{match[1]}/", status_code=302)
    response.headers["set-cookie"] = f"{_COOKIE}; Path={match[1]}; HttpOnly"
    return response


def _described(run: MlflowRun) -> JSON:
    info = {
        "run_id": run.run_id,
        "run_uuid": run.run_id,
        "run_name": run.name,
        "experiment_id": run.experiment_id,
        "status": "RUNNING",
        "start_time": run.start_ms,
        "artifact_uri": "s3://artifacts",
        "lifecycle_stage": "active",
        "user_id": "",
    }
    last = [_point(name, *points[-1]) for name, points in run.metrics.items()]
    tags = [{"key": "mlflow.runName", "value": run.name}]
    return {"info": info, "data": {"metrics": last, "params": [], "tags": tags}}


def _point(name: str, step: int, value: float, moment: int) -> JSON:
    return {"key": name, "value": value, "timestamp": moment, "step": step}


def _refused(code: str, message: str) -> Response:
    return JSONResponse({"error_code": code, "message": message}, status_code=404)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
