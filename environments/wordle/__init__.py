"""Wordle: five letters, six guesses, one tool. The reference environment; see README.md here."""

from environments.wordle.environment import Wordle, WordleEpisode, environment
from environments.wordle.reward import WordleRewards

__all__ = ["Wordle", "WordleEpisode", "WordleRewards", "compact", "compact_per_turn", "environment"]

compact = Wordle(style="compact")
"""The same game in few tokens: `RFT_ENVIRONMENT=environments.wordle:compact`."""

compact_per_turn = Wordle(style="compact", per_turn=True)
"""That, with its reward told by turn, for `advantage: group_based_per_turn`."""
