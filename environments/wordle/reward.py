"""The reward of a game: how it ended decides the tier, how it was played ranks games inside it.

    reward = outcome + weight * clip(points / 150, -1, 1) - recovery penalty

Every number is a field of one frozen record. Change the record, not the code: an environment made as
`Wordle(rewards=WordleRewards(...))` proves on construction that faster solves stay above slower ones,
solves above losses, and losses above giving up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property

from environments.wordle.game import GUESSES, Game, GuessRecord
from environments.wordle.words import opening_information
from rft_agent_sdk.errors import RewardError
from rft_agent_sdk.reward import Reward, Tier, TieredReward
from rft_agent_sdk.types import Outcome


@dataclass(frozen=True)
class WordleRewards:
    """Every constant of the reward.

    Raises:
        RewardError: Constants with which a game could outrank one that ended better.
    """

    solved_last: float = 1.05
    """Outcome of a solve on the last guess; the service counts a reward of 1.0 as a success."""
    solved_first_bonus: float = 0.5
    """What a solve on the first guess gets on top; the guesses between get equal steps of it."""
    solved_weight: float = 0.04
    """Most that shaping moves a solve: less than half a step, so speed always decides."""
    lost: float = -0.5
    """Outcome when all guesses were used, or the game was cut short from outside after a guess."""
    gave_up: float = -0.85
    """Outcome when the policy ended the game itself: it stopped, ran out of tokens, or out of tool calls."""
    unsolved_weight: float = 0.15
    """Most that shaping moves a game that was lost or given up."""
    never_played: float = -1.5
    """Reward without one well-formed guess of the policy; shaping has no part in it."""
    recovery_penalty: float = 0.005
    """Taken off, outside the clip, when every guess was found in plain text; in proportion otherwise."""
    points_scale: float = 150.0
    """Points that make full shaping; more is clipped."""

    new_guess: float = 15.0
    """Points of a guess that is new and does not solve."""
    opening_bit: float = 7.5
    """Points of the game's first guess for each bit of its expected information over the answer list."""
    new_letter: float = 2.0
    """Points of a later guess for each letter not tried before."""
    eliminated: float = 15.0
    """Points of a later guess times the share of the remaining candidates that it rules out."""
    green_ignored: float = -30.0
    """Points for each place whose letter is known and that holds another letter."""
    present_missing: float = -20.0
    """Points for each letter known to be in the word beyond its known places, used less often than its
    known least count."""
    excess_letter: float = -20.0
    """Points for each letter known to be absent, or used more often than its known most."""
    green_reused: float = -3.0
    """Points for each known letter kept in its place: right, but it tells nothing new."""
    present_reused: float = -1.5
    """Points for each letter known to be in the word beyond its known places, used outside them."""
    repeated: float = -40.0
    """Points of a word guessed before; none of the points above apply to it."""
    not_in_dictionary: float = -35.0
    """Points of a word outside the dictionary."""
    malformed: float = -50.0
    """Points of a guess that is not five letters; it uses no guess."""
    every_guess: float = -1.0
    """Points of every guess that was played."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            if not math.isfinite(getattr(self, name)):
                raise RewardError(f"{name} must be a finite number, got {getattr(self, name)!r}")
        if not self.points_scale > 0:
            raise RewardError(f"points_scale must be above 0, got {self.points_scale!r}")
        _ = self.tiers  # refuses constants whose order does not hold

    @cached_property
    def tiers(self) -> TieredReward:
        """The tiers, best first."""
        step = self.solved_first_bonus / (GUESSES - 1)
        solved = tuple(self.solved_last + step * (GUESSES - n) for n in range(1, GUESSES + 1))
        penalty = self.recovery_penalty
        return TieredReward(
            [
                Tier("solved", solved, self.solved_weight, penalty),
                Tier("lost", (self.lost,), self.unsolved_weight, penalty),
                Tier("gave_up", (self.gave_up,), self.unsolved_weight, penalty),
                Tier("never_played", (self.never_played,)),
            ]
        )


def score(game: Game, outcome: Outcome, rewards: WordleRewards) -> Reward:
    """Return the reward of a game as it stands, given why it ended.

    Components tell the tier's `outcome`, the `shaping` and `penalty` added to it, and counts:
    `solved` (0 or 1) is kept apart from the reward, so that a solve rate never depends on constants.
    """
    own = game.own_guesses
    recovered = sum(guess.is_recovered for guess in own)
    points = game_points(game, rewards)
    earned = rewards.tiers.score(
        tier_of(game, outcome),
        grade=len(game.guesses) - 1 if game.solved else 0,
        shaping=points / rewards.points_scale,
        penalty=rewards.recovery_penalty * recovered / len(own) if own else 0.0,
    )
    counts = {
        "solved": game.solved,
        "guesses": len(own),
        "prior_guesses": len(game.guesses) - len(own),
        "malformed": game.malformed,
        "repeats": sum(guess.is_repeat for guess in own),
        "not_in_dictionary": sum(not guess.in_dictionary for guess in own),
        "recovered": recovered,
        "tool_calls": game.calls,
        "points": points,
    }
    return Reward(
        earned.total, {**earned.components, **{name: float(n) for name, n in counts.items()}}
    )


def tier_of(game: Game, outcome: Outcome) -> str:
    """Return the name of the tier a game falls in.

    A game that ran out of tool calls before its guesses was given up: the policy spent its calls on
    something else. Otherwise a stream of malformed calls would be a cheap way to end as a loss.
    """
    if game.solved:
        return "solved"
    if not game.own_guesses:
        return "never_played"
    if game.guesses_left == 0 or outcome.is_cut_short:
        return "lost"
    return "gave_up"


def game_points(game: Game, rewards: WordleRewards) -> float:
    """Return the points of a game so far, before scaling and clipping; the task's guesses score none."""
    played = (
        guess_points(guess, rewards, is_opening=number == 1)
        for number, guess in enumerate(game.guesses, start=1)
        if not guess.is_prior
    )
    return sum(played) + rewards.malformed * game.malformed


def shaping(points: float, rewards: WordleRewards) -> float:
    """Return what points are worth in the reward of a game that is not solved, without the clip."""
    return rewards.unsolved_weight * points / rewards.points_scale


def guess_points(guess: GuessRecord, rewards: WordleRewards, *, is_opening: bool) -> float:
    """Return the points of one guess, judged against what was known before it."""
    points = rewards.every_guess
    if guess.solves:
        return points
    if not guess.in_dictionary:
        points += rewards.not_in_dictionary
    if guess.is_repeat:
        return points + rewards.repeated
    points += rewards.new_guess
    if is_opening:
        return points + rewards.opening_bit * opening_information(guess.word)
    return points + _discovery_points(guess, rewards) + _clue_points(guess, rewards)


def _discovery_points(guess: GuessRecord, rewards: WordleRewards) -> float:
    new_letters = len(set(guess.word) - guess.before.tried)
    before, after = guess.before.remaining, guess.after.remaining
    # none remain only where the answer is outside the answer list, and then nothing can be ruled out
    share = (before - after) / before if before else 0.0
    return rewards.new_letter * new_letters + rewards.eliminated * share


def _clue_points(guess: GuessRecord, rewards: WordleRewards) -> float:
    known, word = guess.before, guess.word
    points = 0.0
    elsewhere: list[str] = []
    for letter, right in zip(word, known.placed, strict=True):
        if letter == right:
            points += rewards.green_reused
            continue
        elsewhere.append(letter)
        if right is not None:
            points += rewards.green_ignored
    for letter in known.present:
        if word.count(letter) < known.least[letter]:
            points += rewards.present_missing
        if letter in elsewhere:
            points += rewards.present_reused
    for letter in set(word):
        if word.count(letter) > known.most.get(letter, len(word)):
            points += rewards.excess_letter
    return points
