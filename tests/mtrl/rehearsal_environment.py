"""Wordle with a policy that takes its time, as a model does."""

import asyncio
from collections.abc import Mapping
from typing import Any

from environments.wordle.environment import Wordle
from environments.wordle.solver import solver_policy

TURN_S = 1.5


async def patient_policy(messages: Any, tools: Any) -> Any:
    await asyncio.sleep(TURN_S)
    return solver_policy(messages, tools)


class PatientWordle(Wordle):
    def policies(self) -> Mapping[str, Any]:
        return {"patient": patient_policy}


environment = PatientWordle()
