"""What owns the weights and the optimizer: the surface of a SageMaker Training Session."""

from rft_agent_sdk.training.engines.base import AdamParams, Datum, Engine, LossName, StepMetrics

__all__ = ["AdamParams", "Datum", "Engine", "LossName", "StepMetrics"]
