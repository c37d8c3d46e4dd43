"""The shipped fakes do what they say: they are the ground other tests stand on."""

import threading

from rft_agent_sdk.auth import BearerTokenSession
from rft_agent_sdk.context import Deadline
from rft_agent_sdk.testing import FakeClock, FakeCredentials, call, scripted
from rft_agent_sdk.types import Message, ToolCall


def test_the_clock_moves_only_when_told_to():
    clock = FakeClock(100)
    assert clock() == clock() == 100
    clock.advance(2.5)
    assert clock() == 102.5
    clock.sleep(1)
    assert clock() == 103.5
    assert clock.slept == [1]


def test_a_deadline_can_be_read_off_the_clock():
    clock = FakeClock()
    deadline = Deadline(10, clock)
    clock.advance(4)
    assert (deadline.remaining(), deadline.expired) == (6, False)
    clock.advance(60)
    assert (deadline.remaining(), deadline.expired) == (0, True)


def test_the_clock_counts_what_many_threads_sleep():
    clock = FakeClock()

    def sleep_often():
        for _ in range(500):
            clock.sleep(1)

    threads = [threading.Thread(target=sleep_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock() == len(clock.slept) == 4000


def test_the_credentials_sign_a_token_without_any_lookup():
    session = BearerTokenSession("us-west-2", credentials=FakeCredentials, clock=FakeClock(1e9))
    assert session.token().startswith("sagemaker-api-key-")
    assert FakeCredentials(token="t").get_frozen_credentials().token == "t"


def test_a_script_answers_each_conversation_by_its_own_turn():
    policy = scripted("First.", call("guess", '{"word": "crane"}', id="c1"))
    user = Message("user", "go")
    first, second = policy([user], []), policy([user, Message("assistant", "First.")], [])
    assert first == Message("assistant", "First.")
    assert second.tool_calls == (ToolCall("guess", '{"word": "crane"}', "c1"),)
    assert policy([user], []) == first  # another conversation is at its own turn
    assert policy([user, first, second], []) == Message("assistant", "Done.")


def test_a_script_counts_the_assistants_turns_alone():
    policy = scripted("one", "two")
    history = [Message("system", "s"), Message("user", "u"), Message("tool", "t")]
    assert policy(history, []).text == "one"
    assert policy([*history, Message("assistant", "one"), *history], []).text == "two"
