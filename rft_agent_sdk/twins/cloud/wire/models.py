"""botocore's service models, read once for all servers of the process."""

from __future__ import annotations

import functools

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel


@functools.cache
def service_model(service: str) -> ServiceModel:
    """Return the model of a service by botocore's name of it, such as `service-quotas`."""
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


@functools.cache
def operation_model(service: str, operation: str) -> OperationModel:
    """Return the model of an operation."""
    return service_model(service).operation_model(operation)


def error_status(service: str, code: str) -> int | None:
    """Return the HTTP status that the model gives an error, `None` where it says nothing."""
    shape = service_model(service).shape_for_error_code(code)
    if shape is None:
        return None
    status = shape.metadata.get("error", {}).get("httpStatusCode")
    return int(status) if status is not None else None
