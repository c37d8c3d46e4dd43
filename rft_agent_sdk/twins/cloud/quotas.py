"""Service Quotas, reading only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rft_agent_sdk.twins.cloud.account import Account, Handler
from rft_agent_sdk.twins.cloud.paging import page_of
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON


@dataclass(slots=True)
class Quota:
    """A quota of a service."""

    service: str
    """Service code, such as `sagemaker`."""
    code: str
    name: str
    value: float
    is_adjustable: bool = True


class Quotas:
    """The operations on quotas."""

    def __init__(self, account: Account, job_concurrency: Callable[[], int]) -> None:
        self._account = account
        self._job_concurrency = job_concurrency
        self.quotas: list[Quota] = []
        """Those beyond the jobs'."""
        self.operations: dict[str, Handler] = {
            "ListServiceQuotas": self._list,
            "GetServiceQuota": self._get,
            "GetAWSDefaultServiceQuota": self._get,
        }

    def _all(self, service: str) -> list[Quota]:
        # Names and codes of the real ones are not published; the number is.
        jobs = [
            Quota("sagemaker", f"L-{index:08d}", f"Maximum number of concurrent {kind} jobs", value)
            for index, kind in enumerate(("AgentRFT", "AgentRFTEvaluation"), 1)
            for value in (float(self._job_concurrency()),)
        ]
        return [quota for quota in [*jobs, *self.quotas] if quota.service == service]

    def _list(self, body: JSON) -> JSON:
        service = body["ServiceCode"]
        code = body.get("QuotaCode")
        found = [
            self._described(quota) for quota in self._all(service) if code in (None, quota.code)
        ]
        if not found:
            raise _missing(f"service {service}")
        return page_of(found, "Quotas", body)

    def _get(self, body: JSON) -> JSON:
        for quota in self._all(body["ServiceCode"]):
            if quota.code == body["QuotaCode"]:
                return {"Quota": self._described(quota)}
        raise _missing(f"quota {body['QuotaCode']} of {body['ServiceCode']}")

    def _described(self, quota: Quota) -> JSON:
        return {
            "ServiceCode": quota.service,
            "ServiceName": quota.service,
            "QuotaArn": self._account.arn("servicequotas", f"{quota.service}/{quota.code}"),
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "Value": quota.value,
            "Unit": "None",
            "Adjustable": quota.is_adjustable,
            "GlobalQuota": False,
        }


def _missing(what: str) -> Refusal:
    return Refusal(
        400, "NoSuchResourceException", f"The request failed because the {what} does not exist."
    )
