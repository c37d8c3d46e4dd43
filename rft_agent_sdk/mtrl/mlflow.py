"""The numbers that a job logged to its MLflow app, read through a presigned address.

No MLflow client and no plug-in for its sign-in is needed: the presigned address opens a session, as it does in a
browser, and the REST interface answers within it. The address is a key: it is neither logged nor part of a message.
"""

from __future__ import annotations

import json
import math
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, HTTPSHandler, build_opener

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.tls import tls_context
from rft_agent_sdk.types import JSON

_TIMEOUT_S = 30.0


def run_metrics(clients: Clients, app: str, run_id: str) -> dict[str, float]:
    """Return the last value of each metric of a run, by its name.

    Args:
        clients: Of the job's region.
        app: ARN of the MLflow app.
        run_id: MLflow's id of the run.

    Raises:
        CloudError: The service or the app refused, or could not be reached.
    """
    with told(f"no address for the MLflow app {app}"):
        address = clients("sagemaker").create_presigned_mlflow_app_url(Arn=app)["AuthorizedUrl"]
    run = _get(address, "api/2.0/mlflow/runs/get", {"run_id": run_id}).get("run")
    logged = run.get("data", {}).get("metrics", []) if isinstance(run, dict) else []
    found = {one["key"]: float(one["value"]) for one in logged if "key" in one and "value" in one}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _get(address: str, path: str, asked: dict[str, str]) -> JSON:
    # urllib, since the usual HTTP clients log every address that they visit.
    opener = build_opener(HTTPCookieProcessor(), HTTPSHandler(context=tls_context()))
    if not address.startswith(("https://", "http://")):
        raise CloudError("the address of the MLflow app is none of http or https")
    try:
        with opener.open(address, timeout=_TIMEOUT_S) as entered:
            # What follows belongs to the app's root, which the address leads to by way of a sign-in page.
            found = urlsplit(entered.geturl())
        root = f"{found.scheme}://{found.netloc}{found.path}".rstrip("/").removesuffix("/auth")
        with opener.open(f"{root}/{path}?{urlencode(asked)}", timeout=_TIMEOUT_S) as answer:
            read = json.load(answer)
    except HTTPError as error:
        error.close()
        raise CloudError(
            f"the MLflow app answered {error.code} to {path}",
            is_transient=error.code == 429 or error.code >= 500,
            is_missing=error.code == 404,
        ) from None
    except (OSError, HTTPException) as error:
        raise CloudError(
            f"the MLflow app cannot be reached: {type(error).__name__}", is_transient=True
        ) from None
    except ValueError:
        raise CloudError(f"the MLflow app answered {path} with something that is no JSON") from None
    return read if isinstance(read, dict) else {}
