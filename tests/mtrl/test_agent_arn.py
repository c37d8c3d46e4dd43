"""Which agent a job calls: what is taken, what is refused, and with which words."""

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.agent_arn import agent_config, is_runtime_id, parse_agent

RUNTIME = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/Wordle_Wordle-aBcDeFgHiJ"
FUNCTION = "arn:aws:lambda:us-west-2:123456789012:function:fwd"


def test_a_runtime_s_arn_becomes_its_config_with_the_default_endpoint():
    assert agent_config(RUNTIME, "us-west-2") == {
        "BedrockAgentCoreConfig": {"AgentRuntimeArn": RUNTIME, "Qualifier": "DEFAULT"}
    }


def test_a_runtime_of_another_partition_is_taken():
    arn = "arn:aws-us-gov:bedrock-agentcore:us-gov-west-1:123456789012:runtime/A-aBcDeFgHiJ"
    config = agent_config(arn, "us-gov-west-1")
    assert config["BedrockAgentCoreConfig"]["AgentRuntimeArn"] == arn
    assert parse_agent(arn).partition == "aws-us-gov"


@pytest.mark.parametrize("suffix", ["", ":PROD", ":3", ":$LATEST"])
def test_a_lambda_function_s_arn_is_kept_with_its_alias(suffix):
    assert agent_config(FUNCTION + suffix, "us-west-2") == {
        "CustomAgentLambdaConfig": {"LambdaArn": FUNCTION + suffix}
    }


def test_a_bare_id_is_resolved_by_what_the_caller_gives():
    asked = []

    def resolve(runtime_id):
        asked.append(runtime_id)
        return RUNTIME

    config = agent_config("Wordle_Wordle-aBcDeFgHiJ", "us-west-2", resolve=resolve)
    assert config["BedrockAgentCoreConfig"]["AgentRuntimeArn"] == RUNTIME
    assert asked == ["Wordle_Wordle-aBcDeFgHiJ"]


def test_a_bare_id_without_a_way_to_resolve_it_is_refused():
    with pytest.raises(UsageError, match="wanted its ARN here"):
        agent_config("Wordle_Wordle-aBcDeFgHiJ", "us-west-2")


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("arn:aws:bedrock-agentcore::us-west-2:123456789012:runtime/AGENTID", "one colon too many"),
        (RUNTIME.replace("123456789012", "12345678901"), "an account has 12 digits"),
        (RUNTIME.replace("123456789012", "1234567890123"), "an account has 12 digits"),
        (RUNTIME.replace("bedrock-agentcore", "bedrock"), "an ARN of the service 'bedrock'"),
        (RUNTIME.replace("-aBcDeFgHiJ", ""), "NAME-XXXXXXXXXX"),
        (RUNTIME + "/", "NAME-XXXXXXXXXX"),
        (RUNTIME + "\n", "NAME-XXXXXXXXXX"),
        ("https://example.com", "NAME-XXXXXXXXXX"),
        ("", "NAME-XXXXXXXXXX"),
        (FUNCTION + ":PROD:extra", "NAME-XXXXXXXXXX"),
    ],
)
def test_what_names_no_agent_is_refused_with_the_forms_that_do(agent, told):
    with pytest.raises(ValueError, match=r"agent: wanted arn:aws:bedrock-agentcore") as refused:
        agent_config(agent, "us-west-2")
    assert told in str(refused.value)


def test_the_arn_of_an_endpoint_is_split_into_runtime_and_qualifier():
    assert agent_config(RUNTIME + "/runtime-endpoint/PROD", "us-west-2") == {
        "BedrockAgentCoreConfig": {"AgentRuntimeArn": RUNTIME, "Qualifier": "PROD"}
    }
    agreeing = parse_agent(RUNTIME + "/runtime-endpoint/DEFAULT", qualifier="DEFAULT")
    assert (agreeing.arn, agreeing.qualifier) == (RUNTIME, "DEFAULT")


def test_an_endpoint_in_the_arn_and_another_one_beside_it_are_refused():
    with pytest.raises(UsageError, match="names the endpoint 'PROD', but qualifier is 'TEST'"):
        parse_agent(RUNTIME + "/runtime-endpoint/PROD", qualifier="TEST")


@pytest.mark.parametrize("agent", [RUNTIME, FUNCTION])
def test_an_agent_of_another_region_is_refused_by_naming_both(agent):
    with pytest.raises(UsageError, match=r"is in 'us-west-2' but the job's region is 'us-east-1'"):
        agent_config(agent, "us-east-1")


def test_a_resolved_runtime_of_another_region_is_refused_too():
    with pytest.raises(UsageError, match="us-east-1"):
        agent_config("Wordle_Wordle-aBcDeFgHiJ", "us-east-1", resolve=lambda _: RUNTIME)


def test_an_agent_of_another_account_is_refused_by_naming_both():
    with pytest.raises(UsageError, match=r"in account 123456789012 but .* 999999999999"):
        agent_config(RUNTIME, "us-west-2", account="999999999999")


def test_an_id_is_told_from_an_arn():
    assert is_runtime_id("Wordle_Wordle-aBcDeFgHiJ")
    assert not is_runtime_id(RUNTIME)
    assert not is_runtime_id("Wordle-short")
