"""A training run in a process of its own, as `rft grpo` composes it, with the two-word policy.

`python -m tests.training.killable FOLDER AGENT_URL [--resume]`
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.grpo import train
from rft_agent_sdk.training.config import Config
from rft_agent_sdk.training.dataset import Row
from tests.training.two_words import TableEngine, TableSampler

ROWS = [Row({"prompt": f"Say word {n}.", "answer": "yes"}) for n in range(4)]


class HeldEngine(TableEngine):
    """Waits in its fifth step to be killed, where a file `hold` says so; says that it was stopped."""

    async def optim_step(self, params: Any) -> Any:
        if self.calls.count("optim_step") == 4 and (self.folder / "hold").exists():
            (self.folder / "held").write_text("")
            await asyncio.sleep(60)
        return await super().optim_step(params)

    async def stop(self) -> None:
        (self.folder / "stopped").write_text("")


def config_of(folder: Path, agent_url: str) -> Config:
    """What the run is told."""
    return Config(
        engine="local",
        base_model="two-words",
        agent_url=agent_url,
        dataset_path="rows.jsonl",
        batch_size=2,
        responses_per_prompt=6,
        epochs=4,
        max_new_tokens=64,
        advantage="dr_grpo",
        learning_rate=0.01,
        max_rollout_time=60.0,
        save_every=2,
        run_dir=str(folder),
        mlflow_uri="none",
    )


def main(folder: Path, agent_url: str, resume: bool) -> int:
    """Run it; return the exit code."""
    engine = HeldEngine(folder, weight=-0.5)

    async def open_engine(config: Config) -> Any:
        return engine

    config = config_of(folder, agent_url)
    work = train(
        config,
        ROWS,
        ROWS[:1],
        resume=resume,
        preflight=False,
        open_engine=open_engine,
        sampler_of=TableSampler,
    )
    return composing.run(work)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], "--resume" in sys.argv))
