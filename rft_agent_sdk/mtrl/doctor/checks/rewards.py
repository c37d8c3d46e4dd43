"""The reward: what the numbers of an environment promise, before a policy finds out what they do not."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rft_agent_sdk.environment import Environment
from rft_agent_sdk.errors import RewardError, RftError
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.reward import TieredReward


def environment_loads(setup: Setup) -> Answer:
    """See that the environment is there and accepts its own numbers."""
    name = setup.environment_name()
    try:
        environment = setup.loaded_environment()
    except RewardError as error:
        return problem(
            f"environment {name!r} refuses its own rewards: {error}",
            "Lower the weights of the shaping, or move the outcomes apart.",
            name,
        )
    except RftError as error:
        return problem(
            str(error),
            "Name it with --environment, or set RFT_ENVIRONMENT in agentcore.json.",
            name,
        )
    return f"environment {environment.name!r}"


def reward_order(setup: Setup) -> Answer:
    """See that no shaping can carry a play past one that ended better."""
    environment = _environment(setup)
    tiers = _tiers(environment)
    try:
        TieredReward(tiers.tiers)  # the proof anew, on the numbers as they are now
    except RewardError as error:
        return problem(
            f"the order does not hold: {error}",
            "Lower the weights of the shaping, or move the outcomes apart.",
            environment.name,
        )
    return f"proved: {' > '.join(tier.name for tier in tiers.tiers)}"


def reward_threshold(setup: Setup) -> Answer:
    """See that every solve counts as one, and nothing else does."""
    environment = _environment(setup)
    tiers = _tiers(environment).tiers
    threshold = _threshold(setup)
    findings = []
    best = tiers[0]
    worst_solve = min(best.band(grade)[0] for grade in range(len(best.outcomes)))
    if not worst_solve >= threshold:
        findings.append(
            problem(
                f"the worst {best.name!r} pays {worst_solve:g}, below success_threshold {threshold:g}: solved tasks "
                "would not count in pass@k",
                "Raise the outcome of the best tier, or lower success_threshold.",
                environment.name,
            )
        )
    for tier in tiers[1:]:
        highest = max(tier.band(grade)[1] for grade in range(len(tier.outcomes)))
        if highest >= threshold:
            findings.append(
                problem(
                    f"the best {tier.name!r} pays {highest:g}, and success_threshold is {threshold:g}: it would count "
                    "as solved in pass@k",
                    "Lower its outcome, or raise success_threshold.",
                    environment.name,
                )
            )
    return (
        findings
        or f"the worst {best.name!r} pays {worst_solve:g}, success_threshold is {threshold:g}"
    )


def reward_floor(setup: Setup) -> Answer:
    """See that a rollout that never played is paid less than one that did."""
    environment = _environment(setup)
    floor, last = environment.floor, None
    if not math.isfinite(floor):
        return problem(
            f"the floor is {floor!r}, which no report can carry",
            "Make it a finite number.",
            environment.name,
        )
    tiers = _tiers(environment).tiers
    lows = [
        (tier, min(tier.band(grade)[0] for grade in range(len(tier.outcomes)))) for tier in tiers
    ]
    last, lowest = lows[-1]
    # The last tier may be that of rollouts that never played: one number, the floor itself.
    is_own = last.outcomes == (floor,) and lowest == floor == last.band()[1]
    above = lows[:-1] if is_own else lows
    reached = [(tier, low) for tier, low in above if low <= floor]
    if reached:
        tier, low = reached[-1]
        return problem(
            f"the floor is {floor:g}, and {tier.name!r} can pay {low:g}: a rollout that broke down would be "
            "preferred to one that played",
            "Lower the floor below every reward of a play.",
            environment.name,
        )
    return f"the floor {floor:g} is below every reward of a play"


CHECKS = (
    Check("environment", "The environment loads, and accepts its own numbers", environment_loads),
    Check("reward-order", "No shaping can rank a play above one that ended better", reward_order),
    Check(
        "reward-threshold",
        "Every solve reaches success_threshold, and nothing else does",
        reward_threshold,
    ),
    Check("reward-floor", "The floor is below every reward of a play", reward_floor),
)


def _environment(setup: Setup) -> Environment:
    try:
        return setup.loaded_environment()
    except RftError as error:
        raise Skipped("the environment does not load", "See the check environment.") from error


def _tiers(environment: Environment) -> TieredReward:
    """Return the environment's tiers: an attribute of it, or `tiers` of one.

    Raises:
        Skipped: It has none, so that nothing can be proved.
    """
    found = next(_tiers_in(environment), None)
    if found is None:
        raise Skipped(
            f"environment {environment.name!r} has no TieredReward, so nothing about its rewards can be proved",
            "Make its outcomes Tiers of a TieredReward, and keep that, or a record with it as `tiers`, in an "
            "attribute of the environment; or show by a test that the order holds, and --skip rewards.",
        )
    return found


def _tiers_in(environment: Environment) -> Iterator[TieredReward]:
    for value in getattr(environment, "__dict__", {}).values():
        for candidate in (value, getattr(value, "tiers", None)):
            if isinstance(candidate, TieredReward):
                yield candidate


def _threshold(setup: Setup) -> float:
    """Return the reward from which the service counts a rollout as solved."""
    if not setup.settings.is_sound:
        raise Skipped("the hyperparameters are not sound", "See the check hyperparameters.")
    return float(setup.settings.values["success_threshold"])
