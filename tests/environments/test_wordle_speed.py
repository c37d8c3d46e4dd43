import pytest

from tests.bench.wordle_rescan import measure


@pytest.mark.slow
def test_guesses_are_at_least_twenty_times_as_fast_as_rescanning_the_answer_list():
    assert measure()["ratio"] >= 20
