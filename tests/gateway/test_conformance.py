import pytest

from rft_agent_sdk.gateway.conformance import conform
from rft_agent_sdk.gateway.render import load_renderer
from tests.gateway.templates import CHATML, TOKENS, renderer, tokenizer

FLAWS = {
    "gpt-oss": {"parallel calls"},
    "llama": {"parallel calls", "parse after render"},
    "mistral-small-3.2": {
        "new user message",
        "thinking, then a new user message",
        "truncation",
        "truncation while thinking",
    },
    "smollm2-135m": {"tools in the prompt"},
    "smollm3": {"tools in the prompt"},  # it takes them by an argument of another name
}
"""What the templates themselves do not keep: one call a turn, tools that move to the last question, or none."""
NAMES = (
    *("tool result", "new user message", "thinking", "thinking, then a new user message"),
    *("truncation", "truncation while thinking", "parallel calls", "JSON spacing", "unicode"),
    *("literal special tokens in content", "parse after render", "tools in the prompt"),
)


@pytest.mark.parametrize("name", sorted(set(TOKENS) - {"mistral-nemo"}))
def test_a_template_conforms_but_for_its_own_flaws(name):
    report = conform(renderer(name))
    assert tuple(check.name for check in report.checks) == NAMES
    failed = {check.name for check in report.checks if not check.passed}
    assert failed == FLAWS.get(name, set()), report
    assert report.mode == "heal"
    assert report.passed == (not failed)


def test_a_template_that_moves_the_system_prompt_is_branched():
    report = conform(renderer("mistral-nemo"))
    assert report.mode == "branch"
    passed = {check.name for check in report.checks if check.passed}
    assert passed == {
        "literal special tokens in content",
        "parse after render",
        "tools in the prompt",
    }


def test_the_small_tokenizer_conforms_exactly():
    report = conform(load_renderer())
    assert report.passed
    details = {check.name: check.detail for check in report.checks}
    assert details["tool result"] == details["thinking, then a new user message"] == "exact"
    assert details["JSON spacing"] == "kept as served; a whole render differs"


def test_a_template_that_drops_reasoning_is_told():
    checks = {check.name: check for check in conform(renderer("qwen3")).checks}
    assert checks["thinking"].detail == "exact"
    assert checks["thinking, then a new user message"].detail.startswith("kept as served")


def test_a_template_that_fails_is_a_failed_check_and_no_error():
    template = "<tool_call>{{ raise_exception('no') }}"
    report = conform(load_renderer(tokenizer=tokenizer(*CHATML), template=template))
    assert report.mode == "branch"
    assert not any(check.passed for check in report.checks)
    assert all("no" in check.detail for check in report.checks)
