"""A Wordle agent, served by uvicorn in a process of its own; started by the bench."""

import sys

from rft_agent_sdk import Reward, Rollout, load_environment, play, rft_handler
from rft_agent_sdk.serving import asgi_app
from tests.bench.rollouts_usage import Usage
from tests.servers import serving

environment = load_environment("wordle")


@rft_handler(floor=environment.floor)
def invoke(rollout: Rollout) -> Reward:
    """Play the rollout's task, as the deployed entrypoint does."""
    return play(environment, rollout)


def main() -> None:
    """Serve and say where; then say, for each line on stdin, what was used until then."""
    with serving(asgi_app(invoke)) as url:
        print(url, flush=True)
        for _ in sys.stdin:
            print(Usage.now().dump(), flush=True)


if __name__ == "__main__":
    main()
