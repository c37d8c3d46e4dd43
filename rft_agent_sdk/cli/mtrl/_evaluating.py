"""What `rft mtrl evaluate` was asked for, made into a series: the models, the temperatures and all they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.evaluation import Evaluated, Setting
    from rft_agent_sdk.mtrl.job import Job
    from rft_agent_sdk.mtrl.series import Series

_FIELDS = (
    "role",
    "agent",
    "base_model",
    "dataset",
    "output",
    "mlflow_app",
    "experiment",
    "kms_key",
)
"""Fields of a setting that are options of that name."""
_OPTIONAL = ("experiment", "kms_key")
_HYPERPARAMETERS = {
    "group_size": "eval_group_size",
    "success_threshold": "success_threshold",
    "top_p": "sampling_top_p",
    "max_tokens": "sampling_max_tokens",
    "rollout_timeout": "rollout_timeout",
    "rollout_concurrency": "rollout_max_concurrency",
    "rollout_retries": "rollout_max_retries",
}
"""Names of the service by our options; `pass_k_values` goes with the group size."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the verb was asked for."""

    training_job: Job | None
    """The job to take over from; `None` where everything is said."""
    options: Mapping[str, Any]

    def setting(self, clients: Clients) -> Setting | None:
        """Return what the evaluations have in common; `None` where nothing was said about it.

        Raises:
            UsageError: Something is missing or wrong.
        """
        from rft_agent_sdk.mtrl.agent_arn import agent_config
        from rft_agent_sdk.mtrl.evaluation import Setting, from_training, pass_ks
        from rft_agent_sdk.mtrl.hub import read_hub_model

        given = {
            name: value
            for name in (*_FIELDS, *_HYPERPARAMETERS, "pass_k", "accept_eula", "max_runtime")
            if (value := self.options[name]) is not None and value is not False and value != ()
        }
        if self.training_job is None and not given:
            return None
        found = from_training(self.training_job) if self.training_job else {}
        found |= {name: given[name] for name in _FIELDS if name in given}
        if agent := given.get("agent"):
            found["agent"] = agent_config(agent, clients.region, resolve=_runtime_of(clients))
        if base := given.get("base_model"):
            is_arn = base.startswith("arn:")
            found["base_model"] = base if is_arn else read_hub_model(clients, _hub_name(base)).arn
        missing = [
            f"--{name.replace('_', '-')}"
            for name in _FIELDS
            if not found.get(name) and name not in _OPTIONAL
        ]
        if missing:
            raise UsageError(
                f"wanted {', '.join(missing)} too: give them, or --job with a training job to take over from"
            )
        values = {
            name: given[option] for option, name in _HYPERPARAMETERS.items() if option in given
        }
        group_size = int(values.get("eval_group_size", 1))
        values["pass_k_values"] = list(given.get("pass_k") or pass_ks(group_size))
        found.setdefault("experiment", "mtrl-eval")
        found["accept_eula"] = bool(given.get("accept_eula") or found.get("accept_eula"))
        if limit := given.get("max_runtime"):
            found["max_runtime_s"] = limit
        return Setting(hyperparameters=values, **found)

    def models(self, series: Series) -> list[Evaluated]:
        """Return the models to evaluate: the base model and the trained ones; those of the series where none is named.

        Raises:
            UsageError: There is none, or two have one label.
        """
        from rft_agent_sdk.mtrl.evaluation import BASE, Evaluated

        if self.training_job is None and not self.options["packages"] and series.cells:
            return list(dict.fromkeys(cell.model for cell in series.cells))
        found = [] if self.options["no_base"] else [Evaluated(BASE)]
        given = [_labelled(one) for one in self.options["packages"]]
        if not given and self.training_job is not None:
            if self.training_job.output_package is None:
                raise UsageError(
                    f"job {self.training_job.name!r} has left no model package: it is {self.training_job.status}. "
                    "Name one with --package, or wait for it"
                )
            given = [Evaluated("trained", self.training_job.output_package)]
        found += given
        labels = [one.label for one in found]
        if not found or len(set(labels)) < len(labels):
            raise UsageError(
                f"wanted models with a label of their own each, got {labels!r}: --package LABEL=ARN"
            )
        return found

    def temperatures(self, series: Series) -> list[float]:
        """Return the temperatures to evaluate at: those given, else those of the series, else 0.

        Raises:
            UsageError: One is no number.
        """
        texts = [part.strip() for one in self.options["temperatures"] for part in one.split(",")]
        if not texts:
            return list(dict.fromkeys(cell.temperature for cell in series.cells)) or [0.0]
        try:
            return list(dict.fromkeys(float(text) for text in texts))
        except ValueError as error:
            raise UsageError(f"--temperature: wanted numbers from 0 to 2, got {texts!r}") from error


def _labelled(given: str) -> Evaluated:
    from rft_agent_sdk.mtrl.evaluation import Evaluated

    label, is_labelled, arn = given.partition("=")
    if not is_labelled:
        label, arn = "trained", given
    if ":model-package/" not in arn or not label.replace("-", "").isalnum():
        raise UsageError(
            f"--package: wanted [LABEL=]ARN with the ARN of a model package, got {given!r}"
        )
    return Evaluated(label, arn)


def _runtime_of(clients: Clients) -> Callable[[str], str]:
    """Return what turns a runtime's id into its ARN."""

    def resolve(runtime_id: str) -> str:
        from rft_agent_sdk.mtrl.aws import told

        with told(f"runtime {runtime_id!r} cannot be looked up"):
            found: str = clients("bedrock-agentcore-control").get_agent_runtime(
                agentRuntimeId=runtime_id
            )["agentRuntimeArn"]
        return found

    return resolve


def _hub_name(base: str) -> str:
    """Return the hub's name of a base model that may go by another one."""
    from rft_agent_sdk.mtrl.models import find_model

    listed = find_model(base)
    return listed.name if listed else base
