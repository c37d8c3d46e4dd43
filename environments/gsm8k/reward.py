"""The reward: whether the answer is right decides, how it came about ranks right ones a little.

Every number is a field of one frozen record, and construction proves that no play can outrank one that
ended better.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rft_agent_sdk.reward import Tier, TieredReward


@dataclass(frozen=True)
class GSM8KRewards:
    """Every constant of the reward.

    Raises:
        RewardError: Constants with which a play could outrank one that ended better.
    """

    worked: float = 1.1
    """Right, and a calculation of the play came to the answer."""
    right: float = 1.05
    """Right without one; the service counts a reward of 1.0 as a success."""
    wrong: float = 0.0
    """An answer, but not the right one."""
    no_answer: float = -0.5
    """Calculations at best, and no answer, whatever cut the play short."""
    never_played: float = -1.0
    """Not one well-formed call."""
    recovery_penalty: float = 0.005
    """Taken off when every call was found in plain text; in proportion otherwise."""

    def __post_init__(self) -> None:
        _ = self.tiers  # refuses constants whose order does not hold

    @cached_property
    def tiers(self) -> TieredReward:
        """The tiers, best first."""
        penalty = self.recovery_penalty
        return TieredReward(
            [
                Tier("right", (self.worked, self.right), max_penalty=penalty),
                Tier("wrong", (self.wrong,), max_penalty=penalty),
                Tier("no_answer", (self.no_answer,), max_penalty=penalty),
                Tier("never_played", (self.never_played,)),
            ]
        )
