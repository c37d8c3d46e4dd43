"""Our gateway with a sampler that costs nothing; started by the bench on a core of its own."""

from importlib import resources

from tokenizers import Tokenizer

from rft_agent_sdk import SamplingParams
from rft_agent_sdk.gateway import Gateway, GatewayServer, Session
from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.gateway.samplers.token import Sampled, Sampler, SampleRequest
from tests.bench.gateway_control import obey
from tests.bench.gateway_play import REPLY

SAMPLING = SamplingParams(temperature=1.0, max_tokens=512)


class NullSampler(Sampler):
    """Samples the same turn every time."""

    def __init__(self) -> None:
        data = resources.files("rft_agent_sdk.gateway.data")
        tokenizer = Tokenizer.from_str(data.joinpath("tokenizer.json").read_text("utf-8"))
        self.ids: list[int] = tokenizer.encode(REPLY, add_special_tokens=False).ids
        self._logprobs: list[float | None] = [-0.5] * len(self.ids)

    @property
    def version(self) -> int:
        return 0

    async def sample(self, request: SampleRequest) -> Sampled:
        return Sampled(list(self.ids), list(self._logprobs), "stop", self.version)


def main() -> None:
    """Serve until stdin ends."""
    gateway = Gateway(renderer=load_renderer(), sampler=NullSampler())
    sessions: list[Session] = []

    def open_sessions(count: int) -> list[str]:
        for session in sessions:
            session.drop()
        sessions[:] = [gateway.open(sampling=SAMPLING) for _ in range(count)]
        return [session.secret for session in sessions]

    with GatewayServer(gateway) as server:
        obey(int(server.url.rpartition(":")[2]), open_sessions)


if __name__ == "__main__":
    main()
