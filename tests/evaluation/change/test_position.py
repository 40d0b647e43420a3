"""Drift by position: what an agent scores early and late in its conversations."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable

import pytest

from agents.models import Agent, Message
from evaluation.change.position import PositionProfile, position_profile
from evaluation.ci.terminal import position_table
from evaluation.scorers.selection import Bin, messages_of_agent, parse_bins, positions_of, sample_by_position
from evaluation.windows import parse_window
from tests.evaluation.change.talking import BINS, chat
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import make_run, make_score
from tests.evaluation.judging import answers, tail_of
from tests.evaluation.measuring import measured
from tests.factories import make_agent, make_channel, say, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

LINE = re.compile(r"line (\d+)")


# -- bins as people write them
@pytest.mark.parametrize(
    ("text", "bins"),
    [
        ("1-5,6-15,16-30,31+", BINS),
        (" 1-5 , 10+ ", ((1, 5), (10, None))),
        ("1,2,3-3", ((1, 1), (2, 2), (3, 3))),
    ],
)
def test_bins_are_read(text: str, bins: tuple[Bin, ...]) -> None:
    assert parse_bins(text) == bins


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *(("", "''"), ("5-1", "5-1"), ("1-5,5-9", "5-9"), ("1+,9+", "9+"), ("0-3", "0-3"), ("a-b", "'a-b'")),
        *(("1-5,", "''"), ("-5", "'-5'"), (",".join(map(str, range(1, 14))), "13 bins")),
    ],
)
def test_bins_that_cannot_be_meant_are_refused_with_what_is_allowed(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=r"allowed: up to 12 stretches .* such as 1-5,6-15,16-30,31\+") as caught:
        parse_bins(text)
    assert named in str(caught.value)


# -- what is drawn
def draw(agent: Agent, *, samples: int = 20, seed: int = 0, bins: Iterable[Bin] = BINS, **window: str) -> list[int]:
    eligible = messages_of_agent(agent=agent, window=parse_window(window.get("window", "all")))
    return sample_by_position(agent=agent, eligible=eligible, bins=tuple(bins), samples=samples, seed=seed)


def positions(agent: Agent, drawn: list[int]) -> list[int]:
    return sorted(position for _, position in positions_of(drawn, agent=agent).values())


def per_bin(agent: Agent, drawn: list[int]) -> list[int]:
    found = positions(agent, drawn)
    return [sum(first <= position <= (last or position) for position in found) for first, last in BINS]


def test_a_position_counts_the_agents_own_messages_in_a_channel() -> None:
    ada, bea = make_agent("ada"), make_agent("bea")
    office, attic = make_channel("office"), make_channel("attic")
    say(office, bea, "first")
    said = [
        say(office, ada, "one"),
        say(attic, ada, "one there"),
        say(office, ada, "two"),
        say(attic, ada, "two there"),
    ]
    say(office, ada, "   ")
    said.append(say(office, ada, "three"))

    found = positions_of([m.pk for m in said], agent=ada)

    assert [found[m.pk] for m in said] == [
        (m.channel_id, position) for m, position in zip(said, (1, 1, 2, 2, 3), strict=True)
    ]


def test_the_sample_is_even_over_the_stretches_and_repeatable() -> None:
    ada = make_agent("ada")
    chat(ada, "long", 60)

    drawn = draw(ada, samples=20)

    assert per_bin(ada, drawn) == [5, 5, 5, 5]
    assert len(set(drawn)) == 20
    assert drawn == draw(ada, samples=20)
    assert drawn != draw(ada, samples=20, seed=1)


def test_what_a_short_or_empty_stretch_leaves_goes_to_the_others() -> None:
    ada = make_agent("ada")
    chat(ada, "middling", 17)

    assert per_bin(ada, draw(ada, samples=12)) == [5, 5, 2, 0]
    assert per_bin(ada, draw(ada, samples=100)) == [5, 10, 2, 0]


def test_early_and_late_positions_come_from_the_same_conversations_where_they_can() -> None:
    ada = make_agent("ada")
    long = {chat(ada, f"long-{n}", 35).pk for n in range(4)}
    for n in range(12):
        chat(ada, f"short-{n}", 4)

    found = positions_of(draw(ada, samples=16), agent=ada).values()

    assert Counter(channel for channel, _ in found) == dict.fromkeys(long, 4)
    assert all(Counter(c for c, t in found if a <= t <= (b or t)) == dict.fromkeys(long, 1) for a, b in BINS)


def test_positions_count_from_the_conversations_start_whatever_the_window_is() -> None:
    ada = make_agent("ada")
    chat(ada, "long", 40)

    assert positions(ada, draw(ada, window="last:3")) == [38, 39, 40]


def test_played_speech_and_other_agents_are_not_drawn() -> None:
    ada, bea = make_agent("ada"), make_agent("bea")
    channel = chat(ada, "long", 3)
    talk(bea, ["mine"], channel=channel)
    say(channel, ada, "simulated", synthetic=True)

    assert positions(ada, draw(ada)) == [1, 2, 3]


# -- what a run says
@pytest.fixture
def speaker(propositions: PropositionFolder) -> Agent:
    """An agent with one proposition about each message."""
    propositions.claims("adherence/_default.yaml", "voice")
    return make_agent("ada")


def by_position(agent: Agent, *, samples: int = 40, **fields: object) -> PositionProfile:
    return position_profile(measured(agent, samples=samples, position_bins=BINS, **fields).summary.run)


def fading(body: dict[str, object]) -> dict[str, object]:
    """A judge whose scores fall with the position that a message names: 8 at first, 3 in the end."""
    said = LINE.search(tail_of(body).split("Ada acts: ")[1])
    assert said is not None
    position = int(said[1])
    return answers(lambda claim: 8 - (position % 2) if position <= 15 else 5 if position <= 30 else 3 - (position % 2))(
        body
    )


def test_a_conversation_that_fades_is_seen_to_fade(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    ada = make_agent("ada")
    chat(ada, "long", 50)
    llm_server.respond = fading

    profile = by_position(ada)

    (found,) = profile.dimensions.values()
    means = [row.score for row in found.bins]
    assert means == [pytest.approx(mean, abs=0.3) for mean in (7.5, 7.5, 5, 2.5)]
    assert [row.messages for row in found.bins] == [5, 10, 13, 12]
    assert [row.scored for row in found.bins] == [10, 20, 26, 24]
    assert found.within.delta == pytest.approx(-5, abs=0.7)
    assert found.within.interval is not None
    assert found.within.interval.high < -4
    assert found.within.verdict == "drifted"
    assert (found.within.first, found.within.last, found.within.conversations) == ("1-5", "31+", 1)


def test_long_conversations_that_were_worse_from_the_start_are_no_fading(llm_server: LLMServer, speaker: Agent) -> None:
    """The confound: later positions come from long conversations only."""
    for n in range(7):
        talk(speaker, [f"weary {position}" for position in range(35)], channel=make_channel(f"long-{n}"))
    for n in range(9):
        talk(speaker, [f"fresh {position}" for position in range(5)], channel=make_channel(f"short-{n}"))
    said = {"weary": 3, "fresh": 8}
    llm_server.respond = lambda body: answers(lambda claim: said[tail_of(body).split("Ada acts: ")[1].split()[0]])(body)

    (found,) = by_position(speaker, samples=240).dimensions.values()

    assert found.bins[0].score is not None
    assert found.bins[0].score > 5
    assert found.within.verdict == "not enough data"
    assert found.within.delta == 0
    assert found.within.conversations == 7


def test_stretches_that_no_conversation_joins_are_not_compared_within(llm_server: LLMServer, speaker: Agent) -> None:
    chat(speaker, "short", 3)
    old = chat(speaker, "old", 12)
    old.messages.update(tags={"when": "before"})
    Message.objects.filter(channel=old, agent=speaker, text__in=["line 11", "line 12"]).update(tags={"when": "now"})
    Message.objects.filter(channel__slug="short").update(tags={"when": "now"})
    llm_server.respond = answers(lambda claim: 7)

    (found,) = by_position(speaker, where={"when": "now"}).dimensions.values()

    assert [row.messages for row in found.bins] == [3, 2, 0, 0]
    assert found.within.interval_note == "no conversation has scores in both stretches"


def test_a_long_conversation_weighs_no_more_than_a_short_one() -> None:
    ada = make_agent("ada")
    run = make_run(ada)
    for lines, late in ((10, 8), (3, 2)):
        spoken = chat(ada, f"of-{lines}", lines).messages.filter(agent=ada).order_by("position")
        for position, message in enumerate(spoken, 1):
            make_score(run, 8 if position <= 2 else late, message=message)

    within = position_profile(run, parse_bins("1-2,3+")).dimensions["adherence"].within

    assert (within.baseline, within.candidate, within.conversations) == (8.0, 5.0, 2)


def test_deleted_messages_and_positions_outside_are_said(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    ada = make_agent("ada")
    channel = chat(ada, "long", 9)
    run = measured(ada, position_bins=((1, 3), (6, None))).summary.run
    channel.messages.filter(text="line 9").delete()

    profile = position_profile(run, parse_bins("1-2,6+"))

    assert profile.left_out == 2
    assert [row.messages for row in profile.dimensions["adherence"].bins] == [2, 3]


def test_a_run_that_was_not_sampled_by_position_asks_for_bins(llm_server: LLMServer, ada: Agent) -> None:
    run = measured(ada).summary.run

    with pytest.raises(ValueError, match="was not sampled by position; name the bins"):
        position_profile(run)
    assert [row.messages for row in position_profile(run, parse_bins("1,2+")).dimensions["adherence"].bins] == [1, 2]


def test_no_interval_leaves_the_scale_and_nothing_unscored_is_guessed(llm_server: LLMServer, speaker: Agent) -> None:
    chat(speaker, "short", 8)
    llm_server.respond = lambda body: answers(lambda claim: 9 if int(LINE.findall(tail_of(body))[-1]) % 2 else 0)(body)
    run = measured(speaker, samples=40, position_bins=BINS).summary.run

    (found,) = position_profile(run).dimensions.values()

    for row in found.bins[:2]:
        assert row.interval is not None
        assert 0 <= row.interval.low < row.interval.high <= 9
    assert found.within.interval is not None
    assert -9 <= found.within.interval.low < found.within.interval.high <= 9
    run.scores.update(status="unscored", score=None)
    (found,) = position_profile(run).dimensions.values()
    assert [(row.scored, row.unscored, row.score) for row in found.bins[:2]] == [(0, 5, None), (0, 3, None)]


# -- how it is shown


def test_the_table_fits_eighty_columns_and_names_judge_and_verdict(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    propositions.claims("fluency/_default.yaml", "varied")
    ada = make_agent("ada")
    chat(ada, "long", 50)
    llm_server.respond = lambda body: fading(body) if "Ada acts: " in tail_of(body) else None
    out = io.StringIO()

    position_table(by_position(ada, dimensions=("adherence", "fluency")), out)

    table = out.getvalue()
    assert "Adherence of ada by position, by test-model" in table
    assert "positions 31+ against 1-5: −5" in table
    assert "drifted" in table
    assert "Not by position, because judged as a whole: fluency." in table
    assert max(len(line) for line in table.splitlines() if "conversation" not in line) <= 80


def test_an_agent_nobody_heard_gets_a_sentence_and_no_empty_table(ada: Agent) -> None:
    out = io.StringIO()

    position_table(
        position_profile(measured(make_agent("kevin"), dimensions=("adherence",), position_bins=BINS).summary.run), out
    )

    assert out.getvalue().strip() == "Adherence of kevin by position: no message was judged."
