"""What an entrypoint's source says, in the ways that people write it."""

import pytest

from rft_agent_sdk.mtrl.doctor.source import read_source

HEAD = "from bedrock_agentcore import BedrockAgentCoreApp\nfrom rft_agent_sdk import rft_handler\n"


def only(text):
    (found,) = [one for one in read_source(HEAD + text).entrypoints if one.is_registered]
    return found


@pytest.mark.parametrize(
    "text",
    [
        "@app.entrypoint\n@rft_handler\ndef f(p): ...\n",
        "@app.entrypoint\n@rft_handler(app=app)\nasync def f(p): ...\n",
        "@app.entrypoint\n@traced\n@rft_handler(app=app)\ndef f(p): ...\n",
        "import rft_agent_sdk as sdk\n@app.entrypoint\n@sdk.rft_handler(app=app)\ndef f(p): ...\n",
        "from rft_agent_sdk import rft_handler as h\n@app.entrypoint\n@h\ndef f(p): ...\n",
        "@rft_handler\ndef f(p): ...\napp.entrypoint(f)\n",
        "def f(p): ...\napp.entrypoint(rft_handler(f))\n",
        "def f(p): ...\nagents.app.entrypoint(rft_handler(app=app)(f))\n",
    ],
)
def test_a_sound_entrypoint_is_known_in_every_way_of_writing_it(text):
    found = only(text)
    assert found.is_in_order
    assert found.handler == "rft_agent_sdk.rft_handler"


def test_the_order_is_that_of_the_decorators():
    assert not only("@rft_handler\n@app.entrypoint\ndef f(p): ...\n").is_in_order


def test_another_decorator_of_that_name_is_told_apart():
    text = "from sagemaker.train.rft import sagemaker_rft_handler\n@app.entrypoint\n@sagemaker_rft_handler\ndef f(p): ...\n"
    assert only(text).handler == "sagemaker.train.rft.sagemaker_rft_handler"


def test_the_handler_s_constant_arguments_are_read():
    text = "@app.entrypoint\n@rft_handler(app=app, budget_s=1200, background=True, floor=x)\ndef f(p): ...\n"
    assert only(text).handler_options == {"budget_s": 1200, "background": True}


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ('return {"status": "error", "error": "no"}', (4,)),
        ('return {"status": "error", "reward": -1.0}', ()),
        ('return {"status": status}', ()),
        ('return {**rest, "status": "error"}', (4,)),
        ("return 1.0", ()),
    ],
)
def test_an_error_in_place_of_a_reward_is_found_where_it_is_returned(body, lines):
    assert read_source(f"{HEAD}def f(p):\n    {body}\n").error_lines == lines
