"""Grade-school word problems, a calculator, one answer. The second environment; see README.md here."""

from environments.gsm8k.environment import GSM8K, GSM8KEpisode, environment
from environments.gsm8k.reward import GSM8KRewards

__all__ = ["GSM8K", "GSM8KEpisode", "GSM8KRewards", "environment"]
