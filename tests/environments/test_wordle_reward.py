import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.wordle.game import CALLS, GUESSES, Game
from environments.wordle.reward import WordleRewards, game_points, guess_points, score, tier_of
from environments.wordle.words import answers, dictionary, opening_information
from rft_agent_sdk.errors import RewardError
from rft_agent_sdk.types import Outcome

REWARDS = WordleRewards()
TIERS = REWARDS.tiers
UNSOLVED = ["lost", "gave_up"]


def played(
    answer: str,
    *words: str,
    prior: Sequence[str] = (),
    malformed: int = 0,
    recovered: Sequence[int] = (),
) -> Game:
    game = Game(answer, prior)
    for number, word in enumerate(words):
        game.play(word, is_recovered=number in recovered)
    game.malformed = malformed
    game.calls = len(words) + malformed
    return game


def total(
    game: Game, outcome: Outcome = Outcome.COMPLETED, rewards: WordleRewards = REWARDS
) -> float:
    return score(game, outcome, rewards).total


def points_of_last(game: Game) -> float:
    return guess_points(game.guesses[-1], REWARDS, is_opening=len(game.guesses) == 1)


# --- the values that were published -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "grade", "shaping", "right"),
    [
        ("solved", 0, -1 / 150, 1.550),
        ("solved", 2, 0.625, 1.375),
        ("solved", 5, 0.475, 1.069),
        ("lost", 0, 0.487, -0.427),
        ("never_played", 0, 0.0, -1.500),
    ],
)
def test_published_values(tier, grade, shaping, right):
    assert round(TIERS.score(tier, grade=grade, shaping=shaping).total, 3) == right


def test_a_first_guess_solve_is_shaped_by_its_one_point_alone():
    game = played("slate", "slate")
    assert game_points(game, REWARDS) == -1
    assert round(total(game), 3) == 1.550


def test_every_solve_clears_the_success_threshold_of_the_service():
    assert min(TIERS.tiers[0].band(grade)[0] for grade in range(GUESSES)) == pytest.approx(1.005)


# --- the order, for every game ----------------------------------------------------------------------


def extremes(tier: str, grade: int = 0) -> list[float]:
    return [
        TIERS.score(tier, grade=grade, shaping=shaping, penalty=penalty).total
        for shaping in (-1e9, -1, 0, 1, 1e9)
        for penalty in (0, 1e9)
    ]


def test_the_order_holds_with_shaping_forced_to_both_ends():
    rungs = [extremes("solved", grade) for grade in range(GUESSES)]
    rungs += [extremes("lost"), extremes("gave_up"), extremes("never_played")]
    for better, worse in pairwise(rungs):
        assert min(better) > max(worse)
    assert max(extremes("lost")) < 0
    assert all(math.isfinite(value) for rung in rungs for value in rung)


moves = st.one_of(
    st.sampled_from(answers()),
    st.sampled_from(dictionary()),
    st.text("abcdeh", min_size=5, max_size=5),
    st.sampled_from(["solve", "malformed", "repeat"]),
)


@st.composite
def games(draw):
    """Draw a game at any moment of it, played in any way, and why it ended."""
    answer = draw(st.sampled_from(answers()))
    prior = draw(
        st.lists(
            st.sampled_from(answers()).filter(lambda word: word != answer), max_size=5, unique=True
        )
    )
    game = Game(answer, prior)
    for move in draw(st.lists(moves, max_size=12)):
        if game.over:
            break
        game.calls += 1
        if move == "malformed":
            game.malformed += 1
            continue
        if move == "repeat" and not game.guesses:
            continue
        word = {"solve": answer, "repeat": game.guesses and game.guesses[-1].word}.get(move, move)
        game.play(word, is_recovered=draw(st.booleans()))
    return game, draw(st.sampled_from(Outcome))


def rank(game: Game, outcome: Outcome) -> tuple[int, int]:
    tier = tier_of(game, outcome)
    names = ["solved", "lost", "gave_up", "never_played"]
    return names.index(tier), len(game.guesses) if game.solved else 0


@settings(max_examples=300)
@given(games(), games())
def test_a_game_that_ended_better_always_earns_more(one, other):
    if rank(*one) > rank(*other):
        one, other = other, one
    better, worse = total(*one), total(*other)
    assert math.isfinite(better)
    assert math.isfinite(worse)
    if rank(*one) < rank(*other):
        assert better > worse


@given(games())
def test_a_structured_call_is_always_strictly_better(drawn):
    game, outcome = drawn
    plain = Game(game._answer, [guess.word for guess in game.guesses if guess.is_prior])
    plain.malformed = game.malformed
    for guess in game.own_guesses:
        plain.play(guess.word)
    plain.calls = game.calls
    if any(guess.is_recovered for guess in game.own_guesses):
        assert total(plain, outcome) > total(game, outcome)
    else:
        assert total(plain, outcome) == total(game, outcome)


def test_different_play_to_the_same_end_earns_differently():
    one = played("beach", "crane", "peach", "beach")
    other = played("beach", "slate", "peach", "beach")
    assert one.solved
    assert other.solved
    assert total(one) != total(other)


# --- how a game ended -------------------------------------------------------------------------------

SIX = ["crane", "slate", "moist", "pudgy", "vivid", "knoll"]


@pytest.mark.parametrize(
    ("game", "outcome", "tier"),
    [
        (played("beach", "beach"), Outcome.INFRASTRUCTURE_ERROR, "solved"),
        (played("beach", *SIX), Outcome.COMPLETED, "lost"),
        (played("beach", "crane"), Outcome.TIMEOUT, "lost"),
        (played("beach", "crane"), Outcome.CANCELLED, "lost"),
        (played("beach", "crane"), Outcome.INFRASTRUCTURE_ERROR, "lost"),
        (played("beach", "crane"), Outcome.COMPLETED, "gave_up"),
        (played("beach", "crane"), Outcome.TRUNCATED, "gave_up"),
        (played("beach", "crane", malformed=CALLS - 1), Outcome.COMPLETED, "gave_up"),
        (played("beach", malformed=CALLS), Outcome.COMPLETED, "never_played"),
        (played("beach"), Outcome.TIMEOUT, "never_played"),
        (played("beach", prior=SIX[:5]), Outcome.COMPLETED, "never_played"),
        (played("beach", SIX[5], prior=SIX[:5]), Outcome.COMPLETED, "lost"),
    ],
)
def test_the_tier_follows_from_how_the_game_ended(game, outcome, tier):
    assert tier_of(game, outcome) == tier


def test_guesses_of_the_task_count_towards_n_and_score_nothing():
    game = played("beach", "beach", prior=["crane", "slate"])
    reward = score(game, Outcome.COMPLETED, REWARDS)
    assert reward.components["outcome"] == pytest.approx(1.35)
    assert reward.components["points"] == -1
    assert (reward.components["guesses"], reward.components["prior_guesses"]) == (1, 2)


def test_solved_is_told_apart_from_the_reward():
    solved = score(played("beach", "crane", "beach"), Outcome.COMPLETED, REWARDS)
    lost = score(played("beach", *SIX), Outcome.COMPLETED, REWARDS)
    assert (solved.components["solved"], lost.components["solved"]) == (1.0, 0.0)


def test_a_recovered_guess_costs_its_share_outside_the_clip():
    half = played("beach", "crane", "slate", recovered=[1])
    assert score(half, Outcome.COMPLETED, REWARDS).components["penalty"] == pytest.approx(-0.0025)
    whole = played("beach", "beach", recovered=[0])
    assert total(played("beach", "beach")) - total(whole) == pytest.approx(0.005)


# --- points, row by row -----------------------------------------------------------------------------


def test_an_opening_guess_earns_its_expected_information():
    game = played("beach", "crane")
    assert points_of_last(game) == pytest.approx(15 + 7.5 * opening_information("crane") - 1)


def test_the_first_guess_after_the_task_s_own_is_no_opening():
    game = played("beach", "moist", prior=["crane"])
    share = 1 - game.guesses[1].after.remaining / game.guesses[1].before.remaining
    # new letters m o i s t; place 3 is a known A; C and E are known to be in the word
    right = -1 + 15 + 5 * 2 + 15 * share - 30 - 2 * 20
    assert game_points(game, REWARDS) == pytest.approx(right)


def test_a_careful_guess_pays_a_little_for_what_it_uses_again():
    game = played("beach", "crane", "peach")  # CRANE against BEACH: C and E yellow, A green
    share = 1 - game.guesses[1].after.remaining / game.guesses[1].before.remaining
    assert points_of_last(game) == pytest.approx(-1 + 15 + 2 * 2 + 15 * share - 3 - 2 * 1.5)


def test_a_letter_known_absent_and_a_copy_too_many_cost_the_same():
    game = played("catch", "crane", "cacti")  # I is absent; C at least twice, T at least once
    absent = played("catch", "crane", "cacti", "tacit")
    assert game.knowledge.absent >= {"i", "r", "n", "e"}
    share = 1 - absent.guesses[2].after.remaining / absent.guesses[2].before.remaining
    # A is kept in place; the first place is a known C; only one C; I is absent; C and T used elsewhere
    right = -1 + 15 + 15 * share - 3 - 30 - 20 - 20 - 2 * 1.5
    assert points_of_last(absent) == pytest.approx(right)
    copies = played("abide", "speed", "eerie")  # SPEED against ABIDE: exactly one E
    share = 1 - copies.guesses[1].after.remaining / copies.guesses[1].before.remaining
    right = -1 + 15 + 2 * 2 + 15 * share - 20 - 1.5 - 20  # no D; E used again; three of it
    assert points_of_last(copies) == pytest.approx(right)


def test_a_second_copy_that_is_known_of_must_be_used():
    game = played("catch", "crane", "cacti", "caput")  # at least two C, and CAPUT has one
    share = 1 - game.guesses[2].after.remaining / game.guesses[2].before.remaining
    right = -1 + 15 + 2 * 2 + 15 * share - 2 * 3 - 20 - 1.5
    assert points_of_last(game) == pytest.approx(right)


def test_a_repeat_costs_and_earns_nothing():
    assert points_of_last(played("beach", "crane", "crane")) == -41


def test_a_word_outside_the_dictionary_costs_on_top():
    game = played("beach", "xyzzy")
    right = -1 - 35 + 15 + 7.5 * opening_information("xyzzy")
    assert points_of_last(game) == pytest.approx(right)
    assert points_of_last(played("beach", "xyzzy", "xyzzy")) == -1 - 35 - 40


def test_a_malformed_guess_costs_points_but_no_guess():
    game = played("beach", malformed=2)
    assert game_points(game, REWARDS) == -100
    assert game.guesses_left == GUESSES


def test_nothing_can_be_ruled_out_where_no_answer_of_the_list_is_left():
    answer = "zoeae"  # in the dictionary, but no answer of the list
    game = played(answer, "adieu", "ozeki", "azoic", "zaxes")
    assert game.guesses[-1].before.remaining == 0
    assert math.isfinite(game_points(game, REWARDS))


# --- constants that were tried before, and why they are gone ----------------------------------------


def test_one_weight_for_all_let_a_slow_solve_pass_a_faster_one():
    def before(n: int, shaping: float) -> float:
        return 1.0 + 0.5 * (6 - n) / 5 + 0.15 * shaping

    assert before(3, +1) == pytest.approx(1.45)
    assert before(2, -1) == pytest.approx(1.25)
    with pytest.raises(RewardError, match=r"tier 'solved' grade 1 .* tier 'solved' grade 0"):
        WordleRewards(solved_last=1.0, solved_weight=0.15)


def test_summed_points_would_pay_a_careful_loss_more_than_a_first_guess_solve():
    loss = played("beach", *SIX)
    careful = played("hatch", "slate", "cabin", "patch", "watch", "match", "latch")
    solve = played("hatch", "hatch")
    assert not careful.solved
    assert game_points(careful, REWARDS) > 0 > game_points(solve, REWARDS)
    assert total(solve) > 1 > 0 > max(total(careful), total(loss))


def test_without_a_tier_for_giving_up_one_good_opener_would_beat_a_careless_full_game():
    opener = played("beach", "slate")
    careless = played("beach", "slate", *["slate"] * 5)
    assert not careless.solved
    as_loss = total(opener, Outcome.TIMEOUT)  # what stopping would earn as a plain loss
    assert as_loss == pytest.approx(-0.44, abs=0.005)
    assert total(careless) == pytest.approx(-0.65, abs=0.005)
    assert total(opener) < total(careless) < as_loss
    with pytest.raises(RewardError, match=r"'gave_up' .* 'lost'"):
        WordleRewards(gave_up=-0.5)


# --- the record -------------------------------------------------------------------------------------


def test_a_user_changes_the_record_and_not_the_code():
    rewards = WordleRewards(lost=-0.45, malformed=-10.0)
    game = played("beach", malformed=1)
    assert game_points(game, rewards) == -10
    assert total(played("beach", *SIX[:3], *SIX[:3]), rewards=rewards) == pytest.approx(-0.6)


@pytest.mark.parametrize(
    "wrong",
    [{"lost": math.nan}, {"points_scale": 0.0}, {"new_guess": math.inf}, {"never_played": -0.9}],
)
def test_constants_that_cannot_be_are_refused(wrong):
    with pytest.raises(RewardError):
        WordleRewards(**wrong)
