"""The voice line-up: can a line be attributed to its speaker, and whose lines count?"""

from __future__ import annotations

import random
import tracemalloc
from statistics import fmean

import pytest
from django.contrib.auth.models import User

from agents.models import Channel, ChannelMember, Message
from evaluation.lineup import measuring
from evaluation.lineup.measuring import line_up
from evaluation.windows import parse_window
from tests.evaluation.lineup.lining_up import SHARED, THINGS, VOICES, chat, left_out, voices
from tests.factories import MONDAY, make_agent, make_channel, say
from tests.machinery import THOROUGH

pytestmark = pytest.mark.django_db


@pytest.fixture
def few_shuffles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to tell voices apart, in a tenth of the time."""
    monkeypatch.setattr(measuring, "PERMUTATIONS", 99)


# -- what it finds
def test_distinct_voices_are_told_apart() -> None:
    channel = make_channel()
    chat(channel, voices(*VOICES), 10)

    result = line_up(channel=channel)

    assert result.balanced_accuracy == 1
    assert result.chance == pytest.approx(1 / 3, abs=0.05)
    assert 1 / 3 < (result.chance_high or 0) < 0.7
    assert (result.p_value, result.distinct) == (0.001, True)
    assert [(v.speaker, v.kind, v.lines, v.compared, v.recall) for v in result.voices] == [
        (slug, "agent", 10, 10, 1.0) for slug in sorted(VOICES)
    ]


@pytest.mark.usefixtures("few_shuffles")
def test_one_voice_in_three_mouths_is_not_more_often_than_one_time_in_twenty() -> None:
    agents, accuracies, distinct = voices(*VOICES), [], 0
    for number in range(12):
        channel = make_channel(f"channel-{number}")
        chat(channel, agents, 10, seed=number, distinct=False)
        result = line_up(channel=channel)
        accuracies.append(result.balanced_accuracy or 0)
        distinct += result.distinct is True

    assert fmean(accuracies) == pytest.approx(1 / 3, abs=0.06)
    assert distinct <= 3


def test_who_borrows_a_voice_is_taken_for_its_owner() -> None:
    channel = make_channel()
    formal, shouty, mumbly = voices("formal", "shouty", "mumbly")
    chat(channel, [formal, shouty], 20)
    for number in range(20):  # speaks as shouty does, but once in a while
        phrase = VOICES["mumbly" if number % 4 == 0 else "shouty"]
        say(channel, mumbly, phrase.format(THINGS[number % 8]))
        say(channel, formal, VOICES["formal"].format(THINGS[-number % 8]))
        say(channel, shouty, VOICES["shouty"].format(THINGS[-number % 8]))

    result = line_up(channel=channel)

    by_speaker = {voice.speaker: voice for voice in result.voices}
    assert by_speaker["formal"].recall == 1
    voice = by_speaker["mumbly"]
    assert voice.taken_for == "shouty"
    assert voice.taken / voice.compared == pytest.approx(1 - voice.recall, abs=1e-3)


def test_a_name_gives_no_speaker_away() -> None:
    channel, rng = make_channel(), random.Random(1)
    agents = [make_agent("tk", display_name="Thaddeus Krzyz"), make_agent("wq", display_name="Wilhelmina Quux")]
    ChannelMember.objects.create(channel=channel, agent=make_agent("zog", display_name="Zogrphlx"))
    for number in range(30):
        for agent in rng.sample(agents, 2):
            own, other = agent.display_name, "Zogrphlx" if agent.slug == "tk" else "@everyone"
            say(
                channel,
                agent,
                f"{own} here. {rng.choice(SHARED).format(rng.choice(THINGS))} {number}, {other}! {agent.slug}",
            )

    result = line_up(channel=channel)

    assert result.distinct is False


def test_a_topic_of_one_time_is_no_voice() -> None:
    """Both speak about whatever is on: a random split would tell them by the topic's words, stretches of time cannot."""
    channel, agents = make_channel(), voices("formal", "shouty")
    rng = random.Random(3)
    for _topic in range(10):
        words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(2)]
        for agent, word in zip(rng.sample(agents, 2), words, strict=True):  # each has its word for this topic only
            for number in range(4):
                say(channel, agent, f"{word} {word} {number}")

    assert line_up(channel=channel).distinct is False


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{}でございます。恐れ入りますが、ご確認をお願い申し上げます。", "{}じゃん!マジやばいって!超うける!"),
        ("أرجو من سيادتكم التكرم بمراجعة {} في أقرب وقت ممكن.", "يا عم {} إيه بس!! خلاص بقى!!"),
    ],
    ids=["Japanese", "Arabic"],
)
def test_voices_are_told_apart_in_other_scripts(first: str, second: str) -> None:
    channel, rng = make_channel(), random.Random(2)
    agents = voices("formal", "shouty")
    things = ["報告書", "会議", "プリンター", "昼食"] if "で" in first else ["التقرير", "الاجتماع", "الطابعة", "الغداء"]
    for _ in range(10):
        for agent in rng.sample(agents, 2):
            say(channel, agent, (first if agent.slug == "formal" else second).format(rng.choice(things)))

    result = line_up(channel=channel)

    assert (result.balanced_accuracy, result.distinct) == (1, True)


# -- whose lines count
def test_only_what_was_really_said_counts() -> None:
    channel, (formal, shouty) = make_channel(), voices("formal", "shouty")
    chat(channel, [formal, shouty], 6)
    for _ in range(5):
        say(channel, formal, "simulated", synthetic=True)
        say(channel, shouty, "  \n ")

    assert (line_up(channel=channel).lines, line_up(channel=channel).compared) == (12, 12)


def test_only_agents_are_compared_unless_everybody_is_wanted() -> None:
    channel = make_channel()
    chat(channel, voices("formal", "shouty"), 8)
    user = User.objects.create_user("carla")
    for number in range(8):
        say(channel, "A customer", f"Where is my parcel no. {number}?")
        channel.refresh_from_db()
        Message.objects.create(
            channel=channel, position=channel.next_position, user=user, text=f"ticket #{number}: closed"
        )
        Channel.objects.filter(pk=channel.pk).update(next_position=channel.next_position + 1)

    agents, everybody = line_up(channel=channel), line_up(channel=channel, everybody=True)

    assert ([v.speaker for v in agents.voices], agents.others) == (["formal", "shouty"], 2)
    assert [(v.speaker, v.kind) for v in everybody.voices] == [
        ("A customer", "outsider"),
        ("carla", "user"),
        ("formal", "agent"),
        ("shouty", "agent"),
    ]
    assert everybody.others == 0


def test_window_and_tags_choose_the_lines() -> None:
    channel, agents = make_channel(), voices("formal", "shouty")
    chat(channel, agents, 8, tags={"build": "40"}, sent_at=MONDAY)
    chat(channel, agents, 6, distinct=False, tags={"build": "41"}, sent_at=MONDAY)

    assert line_up(channel=channel, where={"build": "40"}).balanced_accuracy == 1
    assert line_up(channel=channel, where={"build": "41"}).compared == 12
    assert line_up(channel=channel, window=parse_window("last:12")).compared == 12
    nothing = line_up(channel=channel, window=parse_window("7d")).reason
    assert nothing == f"there are no messages here; 7d: the newest with a time is from {MONDAY:%Y-%m-%d}"


# -- The voice line-up where there is little to compare, and where there is very much
# -- where there is no figure
def test_an_empty_channel_has_none() -> None:
    result = line_up(channel=make_channel())

    assert (result.reason, result.balanced_accuracy, result.distinct, result.lines) == (
        "there are no messages here",
        None,
        None,
        0,
    )


def test_a_channel_of_outsiders_has_none_without_everybody() -> None:
    channel = make_channel()
    for number in range(6):
        say(channel, "Ms One", VOICES["formal"].format(number))
        say(channel, "Mr Two", VOICES["shouty"].format(number))

    assert line_up(channel=channel).reason == "no agent spoke here"
    assert line_up(channel=channel, everybody=True).balanced_accuracy == 1


def test_too_few_lines_leave_a_speaker_out_and_are_said() -> None:
    channel, (formal, shouty, mumbly) = make_channel(), voices("formal", "shouty", "mumbly")
    chat(channel, [formal, shouty], 8)
    chat(channel, [mumbly], 4)

    result = line_up(channel=channel)

    assert [v.speaker for v in result.voices] == ["formal", "shouty"]
    assert left_out(result) == {"mumbly": "fewer than 5 lines"}


def test_who_spoke_in_one_stretch_only_is_left_out() -> None:
    channel, (formal, shouty, mumbly) = make_channel(), voices("formal", "shouty", "mumbly")
    chat(channel, [mumbly], 6)
    chat(channel, [formal, shouty], 40)

    result = line_up(channel=channel)

    assert [v.speaker for v in result.voices] == ["formal", "shouty"]
    assert left_out(result) == {"mumbly": "spoke in one stretch of time only"}


def test_lines_of_nothing_but_names_are_no_lines() -> None:
    channel, (formal, shouty) = make_channel(), voices("formal", "shouty")
    for _ in range(9):
        say(channel, formal, "Shouty @shouty")
        say(channel, shouty, "formal")

    result = line_up(channel=channel)

    assert result.compared == 0
    assert set(left_out(result).values()) == {"fewer than 5 lines that are more than names"}


# -- large channels
@pytest.mark.usefixtures("few_shuffles")
def test_many_messages_take_bounded_time_and_memory_and_the_cap_is_said() -> None:
    many = 50_000 if THOROUGH else 8_000
    channel, agents, rng = make_channel(), voices(*VOICES), random.Random(5)
    Message.objects.bulk_create(
        (
            Message(
                channel=channel,
                position=position,
                external_id=str(position),
                agent=(agent := agents[rng.randrange(3)]),
                text=(VOICES[agent.slug] if position % 3 else SHARED[0]).format(rng.choice(THINGS))
                + " lorem" * (400 if position % 9 == 0 else 1),
            )
            for position in range(1, many + 1)
        ),
        batch_size=2000,
    )
    if THOROUGH:
        tracemalloc.start()  # which takes most of a minute
    result = line_up(channel=channel)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (result.lines, result.compared) == (many, 3 * 666)
    assert result.distinct is True
    cut = int(result.notes[1].split()[1])
    assert cut == pytest.approx(1998 / 9, rel=0.3)
    assert result.notes == [
        "At most 666 lines of each speaker were compared, evenly spread over all of them.",
        f"Of {cut} lines only the first 2,000 characters were compared.",
    ]
    assert peak < 300e6


@pytest.mark.usefixtures("few_shuffles")
def test_of_many_speakers_those_who_said_most_are_compared() -> None:
    channel = make_channel()
    for number in range(6):
        for speaker in range(53):
            if number < 5 or speaker >= 3:
                say(
                    channel,
                    f"Guest {chr(65 + speaker // 26)}{chr(65 + speaker % 26)}",
                    f"{THINGS[number]} and {speaker}",
                )

    result = line_up(channel=channel, everybody=True)

    assert len(result.voices) == 50
    assert left_out(result) == dict.fromkeys(["Guest AA", "Guest AB", "Guest AC"], "not among the 50 who said most")
