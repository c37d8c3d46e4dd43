"""The published table of base models, and how a launch may name one."""

import pytest

from rft_agent_sdk.mtrl.findings import Severity
from rft_agent_sdk.mtrl.models import MODELS, check_model, find_model, read_model

GPT_OSS = "openai-reasoning-gpt-oss-20b"
HUB_ARN = f"arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/{GPT_OSS}/1.2.3"
PACKAGE = "arn:aws:sagemaker:us-west-2:123456789012:model-package/wordle-out/7"


@pytest.mark.parametrize("name", [GPT_OSS, "openai/gpt-oss-20b", HUB_ARN])
def test_a_listed_model_is_found_by_each_of_its_names(name):
    source = read_model(name)
    assert source is not None
    assert source.name == GPT_OSS
    assert source.package is None


def test_a_hub_arn_tells_its_region_and_version():
    source = read_model(HUB_ARN)
    assert source is not None
    assert (source.region, source.version) == ("us-west-2", "1.2.3")


def test_a_model_package_does_not_tell_its_base_model():
    source = read_model(PACKAGE)
    assert source is not None
    assert (source.name, source.package, source.package_group) == (None, PACKAGE, "wordle-out")
    assert (source.region, source.account) == ("us-west-2", "123456789012")


@pytest.mark.parametrize(
    "name", ["", "s3://bucket/model", "arn:aws:iam::1:role/x", "a" * 64, "a b"]
)
def test_what_can_be_no_model_is_told_apart(name):
    assert read_model(name) is None


def test_a_listed_model_in_its_regions_has_nothing_against_it():
    for model in MODELS:
        for region in model.regions:
            assert list(check_model(model.name, region)) == []


def test_a_listed_model_elsewhere_is_refused_by_naming_where_it_is():
    (found,) = check_model("huggingface-vlm-qwen3-6-27b", "us-east-1")
    assert found.id == "model-region"
    assert found.severity is Severity.ERROR
    assert "is trained in us-west-2" in found.message


def test_an_unlisted_model_is_refused_with_the_nearest_one_and_can_be_insisted_on():
    (found,) = check_model("openai-reasoning-gpt-oss-120b", "us-west-2")
    assert found.severity is Severity.ERROR
    assert found.fix.startswith(f"Take {GPT_OSS}, or add --allow-unlisted-model")
    (insisted,) = check_model("openai-reasoning-gpt-oss-120b", "us-west-2", allow_unlisted=True)
    assert insisted.severity is Severity.WARNING


def test_nova_has_the_shorter_conversations():
    nova = find_model("amazon.nova-2-lite-v1")
    assert nova is not None
    assert (nova.family, nova.max_sequence_length) == ("nova", 32_768)
