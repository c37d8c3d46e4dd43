"""What jobs cost: tokens at list prices, the agent from CloudWatch or from an estimate that says so."""

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rft_agent_sdk.mtrl.cost import AgentUse, Cost, Load, job_cost, tokens_by_meter
from rft_agent_sdk.mtrl.job import Transition
from rft_agent_sdk.mtrl.prices import Price, Prices, read_prices
from tests.mtrl.cloud import MODEL, RUNTIME, START, a_job, account, rft

__all__ = ["account"]
ARTICLE = {"PrefillTokenCount": 491_616_806, "SampleTokenCount": 159_737_098}
ARTICLE |= {"TrainTokenCount": 643_308_554}
NOW = START + timedelta(hours=13)
ARN = f"arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/{RUNTIME}"


def trained(arn=ARN, **more):
    """The job of the published run: 12 hours 40 minutes of training."""
    end = START + timedelta(hours=12, minutes=40)
    agent = {"BedrockAgentCoreConfig": {"AgentRuntimeArn": arn}}
    if ":function:" in arn:
        agent = {"CustomAgentLambdaConfig": {"LambdaArn": arn}}
    return a_job(
        status="Completed",
        ended=end,
        transitions=(Transition("Training", START, end, ""),),
        document={
            "AgentConfig": agent,
            "TrainingConfig": {"BaseModelArn": f"arn:aws:hub-content/Hub/Model/{MODEL}/1.0.0"},
            "ServiceOutput": {"BillableTokenUsage": ARTICLE, **more},
        },
    )


@pytest.fixture
def cloudwatch(monkeypatch):
    """A server that answers GetMetricStatistics; its list of sums is by the metric's name."""
    sums: dict[str, list[float]] = {}
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            bodies.append(body)
            found = next((sums[name] for name in sums if name.encode() in body), [])
            points = {"Label": "x", "Datapoints": [{"Sum": one} for one in found]}
            answer = json.dumps(points).encode()
            self.send_response(200)
            self.send_header("content-type", "application/x-amz-json-1.0")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", f"http://127.0.0.1:{server.server_port}")
    yield sums, bodies
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_published_run_costs_what_was_published(account):
    cost = job_cost(account.clients, trained(), Prices({}), Load(), NOW)
    assert cost.tokens_usd == pytest.approx(338.50, abs=0.01)
    assert cost.agent is not None
    assert cost.agent.usd == pytest.approx(79, abs=1)
    assert not cost.agent.is_measured
    text = "\n".join(cost.lines())
    for part in ("$58.99", "$47.92", "$231.59", "$338.5", "us-east-1", "2026-06"):
        assert part in text


def test_a_session_and_a_job_name_the_meters_differently():
    assert tokens_by_meter({"TrainingTokenCount": 3, "SampleTokenCount": 2}) == {
        "sample": 2,
        "train": 3,
    }
    assert tokens_by_meter({"TrainTokenCount": 3, "OtherTokenCount": 9}) == {"train": 3}


def test_an_unknown_price_is_no_price_of_nought():
    cost = Cost({"train": 10, "sample": 5}, Price(prefill=1.0, sample=2.0), None)
    assert cost.tokens_usd is None
    assert "at an unknown price" in "\n".join(cost.lines())
    assert "--prices" in "\n".join(cost.lines())
    assert Cost({"sample": 5_000_000}, Price(sample=2.0), None).tokens_usd == 10.0


def test_prices_of_a_file_win(account):
    table = read_prices({MODEL: {"prefill": 0, "sample": 0, "train": 1}}, "mine.json")
    cost = job_cost(account.clients, trained(), table, Load(), NOW)
    assert cost.tokens_usd == pytest.approx(643.31, abs=0.01)
    assert "mine.json" in "\n".join(cost.lines())


def test_the_agent_s_use_is_cloudwatch_s_where_it_can_be_read(account, cloudwatch):
    sums, bodies = cloudwatch
    sums["CPUUsed-vCPUHours"] = [500.0, 220.5]
    sums["MemoryUsed-GBHours"] = [1000.0]
    agent = job_cost(account.clients, trained(), Prices({}), Load(), NOW).agent
    assert agent is not None
    assert (agent.vcpu_hours, agent.gb_hours, agent.is_measured) == (720.5, 1000.0, True)
    assert agent.usd == pytest.approx(720.5 * 0.0895 + 1000 * 0.00945)
    assert all(part in bodies[0] for part in (b"AWS/Bedrock-AgentCore", ARN.encode(), b"Resource"))


def test_no_use_yet_is_estimated_and_not_taken_for_none(account, cloudwatch):
    agent = job_cost(account.clients, trained(), Prices({}), Load(), NOW).agent
    assert agent is not None
    assert not agent.is_measured
    assert "no use of the agent yet" in agent.note
    assert "96 rollouts at a time for 12.67 hours" in agent.note
    assert "0.6 vCPU and 1.2 GB" in agent.note


def test_an_estimate_takes_the_duration_of_a_rollout_where_it_is_given(account):
    job = trained(RolloutInfo={"Completed": 1000, "Total": 1000})
    agent = job_cost(account.clients, job, Prices({}), Load(1.0, 2.0, 36.0), NOW).agent
    assert agent is not None
    assert (agent.vcpu_hours, agent.gb_hours) == (10.0, 20.0)
    assert "1,000 rollouts of 36 s" in agent.note


def test_an_agent_elsewhere_has_no_cost_here(account):
    job = trained("arn:aws:lambda:us-west-2:123456789012:function:forward")
    cost = job_cost(account.clients, job, Prices({}), Load(), NOW)
    assert cost.agent is None
    assert "not hosted on AgentCore" in "\n".join(cost.lines())


def test_the_report_holds_as_json():
    use = AgentUse(1.0, 2.0, "measured", is_measured=True)
    told = Cost({"train": 1_000_000}, Price(0.1, 0.2, 0.3, "2026-06"), use).to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["tokens_usd"] == pytest.approx(0.3)
    assert told["agent"]["usd"] == pytest.approx(0.0895 + 2 * 0.00945)
    assert Cost({}, Price(), None).to_json()["tokens_usd"] is None


def test_tokens_of_an_unknown_meter_are_told_and_in_no_sum(account):
    job = trained()
    job.document["ServiceOutput"]["BillableTokenUsage"]["CachedTokenCount"] = 5
    cost = job_cost(account.clients, job, Prices({}), Load(), NOW)
    assert "5 tokens of CachedTokenCount: a meter without a known price, in no sum" in cost.lines()
    assert cost.to_json()["unpriced_tokens"] == {"CachedTokenCount": 5}


def test_the_verb_tells_a_job_s_cost_and_takes_a_file_of_prices(account, tmp_path):
    account.create().wait(10)
    told = rft("cost", "wordle-1")
    assert told.returncode == 0, told.stderr
    assert "tokens in all $" in told.stdout
    assert "estimated: CloudWatch cannot be read" in told.stdout
    (tmp_path / "prices.json").write_text(
        json.dumps({MODEL: {"prefill": 0, "sample": 0, "train": 1000}})
    )
    found = json.loads(
        rft("cost", "wordle-1", "--json", "--prices", tmp_path / "prices.json").stdout
    )
    assert found["tokens_usd"] == pytest.approx(900 * 1024 * 3 / 1000)
    (tmp_path / "prices.json").write_text("nothing")
    refused = rft("cost", "wordle-1", "--prices", tmp_path / "prices.json")
    assert refused.returncode == 2
    assert "wanted JSON" in refused.stderr
