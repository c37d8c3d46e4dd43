"""Clients of the AWS services that jobs, agents and their leftovers live in, and what their refusals mean.

botocore only: any machine with the account's credentials can look after a job. Endpoints, profile and
credentials are the environment's, as for the AWS command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
)
from botocore.parsers import ResponseParserError

from rft_agent_sdk.errors import CloudError, CredentialsError, UsageError

_CONFIG = Config(
    retries={"mode": "standard", "max_attempts": 3}, connect_timeout=10, read_timeout=60
)
_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "InternalServerException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Codes of a refusal that another try may not meet; beside every 429 and 5xx."""
_LOST = (
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    ResponseParserError,
)
"""A connection that failed or broke off, and a credential endpoint that did."""
_MISSING = frozenset({"NoSuchBucket", "NoSuchKey", "NotFound"})


class Clients:
    """One client of each service in one region, made when it is first asked for."""

    def __init__(self, region: str | None = None) -> None:
        """Set out to a region.

        Args:
            region: AWS region; `None` takes the environment's or the profile's.
        """
        self._session = botocore.session.Session()
        self._region = region or os.environ.get("AWS_REGION")
        self._made: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        """Return the client of a service, by botocore's name of it.

        Raises:
            UsageError: No region can be told.
        """
        if service not in self._made:
            try:
                self._made[service] = self._session.create_client(
                    service, region_name=self._region, config=_CONFIG
                )
            except NoRegionError as error:
                raise UsageError("no AWS region: say --region or set AWS_REGION") from error
        return self._made[service]

    @property
    def region(self) -> str:
        """The region that calls go to.

        Raises:
            UsageError: No region can be told.
        """
        found: str = self("sagemaker").meta.region_name
        return found

    def __enter__(self) -> Self:
        """Return the clients."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close their connections."""
        for client in self._made.values():
            client.close()


@contextmanager
def told(what: str) -> Iterator[None]:
    """Raise what AWS clients raise as one of our errors, whose message begins with `what`.

    Raises:
        CredentialsError: There are no credentials.
        CloudError: The service refused, or could not be reached.
    """
    try:
        yield
    except ClientError as error:
        raise _refused(what, error) from error
    except NoCredentialsError as error:
        raise CredentialsError(
            f"{what}: no AWS credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID and its secret"
        ) from error
    except (BotoCoreError, ResponseParserError) as error:
        # What was lost on the way is worth another try; a parameter that botocore refuses is not.
        raise CloudError(f"{what}: {error}", is_transient=isinstance(error, _LOST)) from error


def _refused(what: str, error: ClientError) -> CloudError:
    answer = error.response.get("Error", {})
    code = answer.get("Code") or "unknown error"
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0
    return CloudError(
        f"{what}: {code}: {answer.get('Message') or 'no message'} ({error.operation_name})",
        code=code,
        is_transient=code in _TRANSIENT or status == 429 or status >= 500,
        is_missing=status == 404 or code in _MISSING or code.startswith("ResourceNotFound"),
    )
