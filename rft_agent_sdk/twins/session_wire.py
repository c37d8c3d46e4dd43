"""Operations of a training session as they come over the wire, checked and made records of.

What breaks the service model's limits, or names what it does not know, is refused at once (400). What is
missing in a datum, or has the wrong length, is accepted and fails the operation later, as the service does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from rft_agent_sdk.twins.backend import (
    Adam,
    Loss,
    LossName,
    OperationFailed,
    SampleRequest,
    TrainingDatum,
)
from rft_agent_sdk.twins.refusal import invalid
from rft_agent_sdk.types import JSON

TRAINING = frozenset(
    {"forward", "forwardBackward", "optimizerStep", "saveWeights", "saveState", "loadState"}
)
SAMPLING = frozenset({"sample", "computeLogprobs", "loadWeightsForSampling"})

_INPUTS = {
    "target_tokens": int,
    "weights": float,
    "advantages": float,
    "logprobs": float,
    "ref_log_prob": float,
    "temperature": float,
}
_NEEDED = ("target_tokens", "weights")
_NEEDED_BY_RL = (*_NEEDED, "advantages", "logprobs")
_CLIPS = {"clip_low_threshold": (0.0, 1.0), "clip_high_threshold": (1.0, 10.0)}
_ADAM = {
    "learningRate": ("learning_rate", 0.0, 0.01),
    "beta1": ("beta1", 0.0, 0.999999),
    "beta2": ("beta2", 0.0, 0.999999),
    "eps": ("eps", 1e-16, 0.01),
    "weightDecay": ("weight_decay", 0.0, 1.0),
    "gradClipNorm": ("grad_clip_norm", 0.0, 100.0),
    "loraPlusLrRatio": ("", 1.0, 100.0),
}
_SAMPLE_KEYS = {
    "prompt",
    "numSamples",
    "samplingParams",
    "includePromptLogprobs",
    "topkPromptLogprobs",
    "modelPackageArn",
}
_PARAM_KEYS = {"maxTokens", "temperature", "topK", "topP", "seed", "stop"}


def operation_of(config: Any, known: frozenset[str]) -> tuple[str, JSON]:
    """Return the one member of an operation's union, and its fields.

    Raises:
        Refusal: It has not exactly one, or one nobody knows.
    """
    if not isinstance(config, dict) or len(config) != 1:
        raise invalid("operationConfig must have exactly one member")
    ((name, fields),) = config.items()
    if name not in known or not isinstance(fields, dict):
        raise invalid(f"operationConfig has {name!r}, wanted one of {', '.join(sorted(known))}")
    return name, fields


def check_training(name: str, fields: JSON) -> None:
    """Refuse a training operation that the service would not even queue."""
    if name in ("forward", "forwardBackward"):
        loss_of(fields)
        _check_inputs(fields)
    elif name == "optimizerStep":
        adam_of(fields)
    elif name == "loadState":
        text(fields, "modelPackageArn")
        if not isinstance(fields.get("loadOptimizer"), bool):
            raise invalid("loadState.loadOptimizer is required, true or false")
    elif len(str(fields.get("description") or "")) > 1024:
        raise invalid(f"{name}.description has more than 1024 characters")


def loss_of(fields: JSON) -> Loss:
    """Return the loss of a forward pass.

    Raises:
        Refusal: A loss nobody knows, or a config with other keys than the two thresholds, or out of range.
    """
    name: LossName | None = next(
        (known for known in get_args(LossName) if known == fields.get("lossFnName")), None
    )
    if name is None:
        raise invalid(f"lossFnName {fields.get('lossFnName')!r} is not a loss function")
    config = fields.get("lossFnConfig") or {}
    if not isinstance(config, dict):
        raise invalid("lossFnConfig must be an object")
    if unknown := sorted(set(config) - set(_CLIPS)):
        raise invalid(f"lossFnConfig has unknown keys {unknown}")
    bounds = {
        key: _number(config, key, low, high, "lossFnConfig")
        for key, (low, high) in _CLIPS.items()
        if key in config
    }
    default = Loss(name)
    return Loss(
        name,
        bounds.get("clip_low_threshold", default.clip_low),
        bounds.get("clip_high_threshold", default.clip_high),
    )


def adam_of(fields: JSON) -> Adam:
    """Return the optimizer's parameters.

    Raises:
        Refusal: The learning rate is missing or 0, or a number is out of its range.
    """
    given = fields.get("adamParamsConfig")
    if not isinstance(given, dict) or "learningRate" not in given:
        raise invalid("optimizerStep.adamParamsConfig.learningRate is required")
    if unknown := sorted(set(given) - set(_ADAM)):
        raise invalid(f"adamParamsConfig has unknown keys {unknown}")
    values = {
        name: _number(given, key, low, high, "adamParamsConfig")
        for key, (name, low, high) in _ADAM.items()
        if key in given
    }
    values.pop("", None)  # there is no adapter with two matrices here
    if values["learning_rate"] == 0:
        raise invalid("adamParamsConfig.learningRate must be greater than 0")
    return Adam(**values)


def datums_of(fields: JSON, loss: Loss) -> list[TrainingDatum]:
    """Return the datums of a forward pass.

    Raises:
        OperationFailed: A datum lacks an input of this loss, or one has not the length of its tokens.
    """
    needed = _NEEDED if loss.name == "cross_entropy" else _NEEDED_BY_RL
    found = []
    for datum in fields["datumList"]:
        tokens = tokens_of(datum["modelInput"])
        inputs = {name: tensor["data"] for name, tensor in _inputs(datum).items()}
        if missing := [name for name in needed if name not in inputs]:
            raise OperationFailed(f"loss inputs are missing: {missing}")
        lengths = {len(tokens), *(len(inputs[name]) for name in needed)}
        if len(lengths) != 1:
            raise OperationFailed("per-token loss inputs must have the length of the model input")
        is_rl = loss.name != "cross_entropy"
        found.append(
            TrainingDatum(
                tokens,
                tuple(inputs["target_tokens"]),
                tuple(map(float, inputs["weights"])),
                tuple(map(float, inputs["logprobs"])) if is_rl else (),
                tuple(map(float, inputs["advantages"])) if is_rl else (),
            )
        )
    return found


def tokens_of(model_input: Any) -> tuple[int, ...]:
    """Return the tokens of a `ModelInput`, its chunks joined.

    Raises:
        Refusal: It is not one, or has no token.
    """
    chunks = model_input.get("chunks") if isinstance(model_input, dict) else None
    if not isinstance(chunks, list):
        raise invalid("a model input needs chunks")
    tokens: list[int] = []
    for chunk in chunks:
        if not isinstance(chunk, dict) or chunk.get("type") != "encoded_text":
            raise invalid("a chunk needs the type encoded_text")
        part = chunk.get("tokens")
        if not isinstance(part, list) or not _is_all(part, int):
            raise invalid("a chunk's tokens must be integers")
        tokens += part
    if not tokens:
        raise invalid("a model input needs at least one token")
    return tuple(tokens)


def sample_of(fields: JSON) -> SampleRequest:
    """Return what to sample.

    Raises:
        Refusal: A field is missing, unknown, or out of its range.
    """
    params = fields.get("samplingParams")
    if not isinstance(params, dict) or "maxTokens" not in params:
        raise invalid("sample.samplingParams.maxTokens is required")
    if unknown := sorted((set(fields) - _SAMPLE_KEYS) | (set(params) - _PARAM_KEYS)):
        raise invalid(f"sample has unknown keys {unknown}")
    stop = params.get("stop") or []
    if not _is_all(stop, str):
        raise invalid("samplingParams.stop must be texts")
    seed = params.get("seed")
    return SampleRequest(
        prompt=tokens_of(fields.get("prompt")),
        num_samples=int(_number(fields, "numSamples", 1, 1000, "sample")),
        max_tokens=int(_number(params, "maxTokens", 512, 131072, "samplingParams")),
        temperature=_number({"temperature": 1.0, **params}, "temperature", 0, 2, "samplingParams"),
        top_p=_number({"topP": 1.0, **params}, "topP", 0, 1, "samplingParams"),
        top_k=int(_number({"topK": -1, **params}, "topK", -1, 2**31, "samplingParams")),
        # Seeds may be negative on the wire; numpy's may not.
        seed=None if seed is None else int(seed) % 2**32,
        stop=tuple(stop),
    )


def text(fields: Mapping[str, Any], key: str) -> str:
    """Return a required text.

    Raises:
        Refusal: It is missing, empty or no text.
    """
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise invalid(f"{key} is required")
    return value


def _check_inputs(fields: JSON) -> None:
    datums = fields.get("datumList")
    if not isinstance(datums, list) or not datums:
        raise invalid("datumList needs at least one datum")
    for index, datum in enumerate(datums):
        if not isinstance(datum, dict):
            raise invalid(f"datumList[{index}] is no object")
        if unknown := sorted(set(datum) - {"modelInput", "lossFnInputs"}):
            raise invalid(f"datumList[{index}] has unknown keys {unknown}")
        tokens_of(datum.get("modelInput"))
        inputs = _inputs(datum)
        if unknown := sorted(set(inputs) - set(_INPUTS)):
            raise invalid(f"datumList[{index}].lossFnInputs has unknown keys {unknown}")
        for name, tensor in inputs.items():
            _check_tensor(tensor, name, f"datumList[{index}].lossFnInputs.{name}")


def _check_tensor(tensor: Any, name: str, where: str) -> None:
    if not isinstance(tensor, dict) or not isinstance(tensor.get("dtype"), str):
        raise invalid(f"{where} needs data and dtype")
    wants_integers = _INPUTS[name] is int
    if tensor["dtype"].startswith("int") != wants_integers:
        raise invalid(f"{where} has dtype {tensor['dtype']!r}")
    data = tensor.get("data")
    if not _is_all(data, int) and (wants_integers or not _is_all(data, (int, float))):
        raise invalid(f"{where}.data must be a flat array of numbers")
    if not all(map(math.isfinite, data or ())):
        raise invalid(f"{where}.data has a number that is not finite")
    if tensor.get("shape") not in (None, [len(data or ())]):
        raise invalid(f"{where}.shape does not fit its data")


def _inputs(datum: JSON) -> JSON:
    inputs = datum.get("lossFnInputs") or {}
    if not isinstance(inputs, dict):
        raise invalid("lossFnInputs must be an object")
    return inputs


def _is_all(values: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(values, Sequence) and all(
        isinstance(value, kind) and not isinstance(value, bool) for value in values
    )


def _number(fields: Mapping[str, Any], key: str, low: float, high: float, where: str) -> float:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid(f"{where}.{key} must be from {low} to {high}, got {value!r}")
    return value
