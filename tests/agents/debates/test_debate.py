"""Starting debates, asking for rounds, and playing them to an exit, offline and through the real SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import ProtectedError
from pytest_django import Settings

from agents.debates.debate import add_message, ask_rounds, play, work_one
from agents.debates.measures import Changes
from agents.debates.models import Debate, DebateRound, DebateSeat, DebateTurn
from agents.debates.modes import MODES
from agents.debates.report import as_markdown, report
from agents.debates.starting import DebateRefused, start_debate
from agents.kit.models import LLMCall, owner_name
from agents.models import Agent, Channel, ChannelMember, Message, Run
from tests.agents.debates.seats import TOPIC, Panel, debated, played, record, seated
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
REASONS = {"consensus", "convergence", "confidence", "max_rounds"}


# -- all modes
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_comes_to_an_exit_offline(mode: str) -> None:
    debate = debated(3, mode=mode, rounds=2)

    assert debate.status == "completed", debate.error
    assert debate.exit_reason in REASONS
    assert debate.exit_details
    rounds = list(debate.rounds.order_by("number"))
    assert [each.number for each in rounds] == list(range(len(rounds))), "the poll, and no gap"
    assert rounds[-1].exit == {"ends": True, "reason": debate.exit_reason, "details": debate.exit_details}
    assert all(each.exit["ends"] is False for each in rounds[:-1])
    turns = debate.turns.values_list("status", flat=True)
    assert list(turns) == ["answered"] * 3 * len(rounds)
    assert LLMCall.objects.exclude(provider="offline").count() == 0


@pytest.mark.parametrize("mode", ["delphi", "collaborative"])
def test_a_debate_comes_to_an_exit_with_typed_answers_of_a_model(mode: str, llm_server: LLMServer) -> None:
    panel = Panel(llm_server, fields=lambda seat, turn: {"stance": "no" if seat == "bob" else "yes"})

    debate = debated(3, mode=mode, rounds=3)

    assert (debate.status, debate.exit_reason) == ("completed", "max_rounds"), debate.error
    assert panel.turns == {"ada": 3, "bob": 3, "cleo": 3}, "the poll and three rounds, one turn of each seat"
    assert panel.judged == 3
    messages = Message.objects.filter(channel=debate.channel)
    assert messages.count() == 12
    fields = {"position", "reasoning", "confidence", "citations"} | ({"stance"} if MODES[mode].stances else set())
    assert all(fields <= message.payload.keys() for message in messages)
    first = debate.rounds.get(number=1)
    stances = {"yes": 2, "no": 1, "neutral": 0} if MODES[mode].stances else {"yes": 0, "no": 0, "neutral": 0}
    assert first.statistics["stances"] == stances
    assert first.statistics["confidence"]["median"] == 0.5
    assert (first.consensus["agreement"], first.consensus["judge"]) == (0.5, "test-model")


def test_a_seat_acts_with_the_model_it_was_given(llm_server: LLMServer) -> None:
    Panel(llm_server)

    debated(2, rounds=1, models={"2": "another-model"})

    models = {
        (str(body["system"]).count("You are bob"), body["model"]) for body in llm_server.bodies if "tools" in body
    }
    assert models == {(0, "test-model"), (1, "another-model")}


def test_a_worker_plays_what_was_asked_for() -> None:
    debate = start_debate(topic=TOPIC, mode="delphi", agents=seated(), poll=False)
    assert not work_one(owner=owner_name()), "nothing was asked for"

    ask_rounds(debate, 1)

    assert work_one(owner=owner_name())
    assert not work_one(owner=owner_name())
    assert list(debate.rounds.values_list("number", flat=True)) == [1]


# -- one round or all
def _differing(seat: str, turn: int) -> dict[str, Any]:
    """Seats that come round, one after the other."""
    return {"stance": "no" if len(seat) + turn < 7 and seat != "ada" else "yes", "confidence": 0.5 + turn / 10}


def test_playing_round_by_round_and_to_the_end_gives_the_same(llm_server: LLMServer) -> None:
    options: dict[str, Any] = {"topic": TOPIC, "mode": "delphi", "agents": seated(3), "rounds": 3}
    Panel(llm_server, fields=_differing)
    at_once = played(start_debate(**options))

    Panel(llm_server, fields=_differing)
    by_round = start_debate(**options)
    seen = []
    while by_round.status == "waiting":
        seen.append(by_round.rounds.count())
        played(by_round, 1)

    assert seen == [0, *range(2, len(seen) + 1)], "the poll comes with the first round"
    assert at_once.status == "completed"
    assert record(by_round) == record(at_once)


def test_asking_twice_plays_once() -> None:
    debate = start_debate(topic=TOPIC, mode="delphi", agents=seated(), rounds=3)
    twin = Debate.objects.get(pk=debate.pk)

    ask_rounds(debate, 1)
    ask_rounds(twin, 1)
    play(debate, owner=owner_name())
    play(twin, owner=owner_name())

    assert list(debate.rounds.order_by("number").values_list("number", flat=True)) == [0, 1]


def test_groupthink_at_the_exit_asks_for_extra_rounds_and_says_so(llm_server: LLMServer) -> None:
    Panel(llm_server, fields=lambda seat, turn: {"confidence": 0.9}, agreement=1.0)
    agents = seated()

    debate = played(start_debate(topic=TOPIC, mode="delphi", agents=agents, extra_rounds_on_groupthink=2))

    assert (debate.exit_reason, debate.rounds.count()) == ("consensus", 4)
    assert debate.exit_details.endswith("after 2 extra rounds because of groupthink")
    assert debate.rounds.get(number=3).groupthink["detected"] is True
    assert debate.rounds.get(number=0).groupthink["detected"] is False, "independent answers are no group"

    plain = played(start_debate(topic=TOPIC, mode="delphi", agents=agents))
    assert (plain.exit_reason, plain.rounds.count()) == ("consensus", 2)
    assert "heuristic" not in plain.exit_details  # a model said how far they agree


def test_what_a_round_changed_is_stored_with_it(llm_server: LLMServer) -> None:
    """Bob follows the majority in round 1 and has nothing new to say; Dan follows in round 2, with an argument."""

    def fields(seat: str, turn: int) -> dict[str, Any]:
        if seat == "bob":
            copied = {"position": "ada holds position 3", "reasoning": "ada has reason 0.", "text": "As ada says."}
            return copied if turn else {"stance": "no"}
        if seat == "dan":
            new = {"position": "Parking is free beside the river", "reasoning": "My mother parks there every Sunday."}
            return new if turn > 1 else {"stance": "no"}
        return {}

    Panel(llm_server, fields=fields)
    debate = played(start_debate(topic=TOPIC, mode="delphi", agents=[*seated(4), make_eve()], rounds=2))

    first, second = (debate.rounds.get(number=n).statistics for n in (1, 2))
    assert debate.rounds.get(number=0).statistics["changes"] is None
    assert first["changes"]["moves"] == [
        {
            "seat": 2,
            "before": "no",
            "after": "yes",
            "to_majority": True,
            "from_majority": False,
            "new_words": 0,
            "conform": True,
        }
    ]
    assert first["changes"]["conformity"] == 1.0
    assert second["changes"]["moves"][0]["conform"] is False
    assert second["changes"]["conformity"] == 0.0
    assert second["vote"] == {"winner": "yes", "counts": {"yes": 5, "no": 0, "neutral": 0}}


def make_eve() -> Agent:
    return make_agent("eve", system_prompt="You are eve, a clerk.")


# -- seats that fail
FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "refuses": ({"stop_reason": "refusal"}, "failed", "the model call failed: refused"),
    "sends malformed fields": (
        {"tool_calls": [("send_message", {"channel": "x", "text": "Hm.", "position": "", "confidence": "very"})]},
        "failed",
        "no valid answer: ",
    ),
    "says nothing": ({"text": "I would rather not."}, "silent", "used no tool"),
}


@pytest.mark.parametrize(("reply", "status", "reason"), FAULTS.values(), ids=FAULTS)
def test_a_seat_without_an_answer_is_recorded_and_the_round_goes_on(
    reply: dict[str, Any], status: str, reason: str, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_STEP_DEADLINE = 1.0
    Panel(llm_server, replies=lambda seat, turn: reply if (seat, turn) == ("bob", 1) else None)

    debate = debated(3, rounds=2)

    assert (debate.status, debate.exit_reason) == ("completed", "max_rounds")
    turns = dict(debate.turns.filter(round=1).values_list("seat__number", "status"))
    assert turns == {1: "answered", 2: status, 3: "answered"}
    turn = debate.turns.get(round=1, seat__number=2)
    assert reason in turn.error
    assert turn.message is None
    assert turn.run is not None
    assert debate.rounds.get(number=1).statistics["answers"] == 2
    assert debate.turns.filter(round=2, status="answered").count() == 3, "it answers in the next round"


@pytest.mark.parametrize(
    ("poll", "fails_in", "words"),
    [
        (True, 0, "in the poll"),
        (True, 1, "in round 1"),
    ],
)
def test_a_round_in_which_all_fail_ends_the_debate_as_failed(
    poll: bool, fails_in: int, words: str, llm_server: LLMServer
) -> None:
    Panel(llm_server, replies=lambda seat, turn: {"status": 400} if turn == fails_in else None, agreement=1.0)

    debate = debated(2, poll=poll)

    assert (debate.status, debate.exit_reason) == ("failed", "")
    assert debate.error.startswith(f"no seat answered {words} (Ada: the model call failed: rejected")
    last = debate.rounds.order_by("number").last()
    assert last is not None
    assert last.statistics["answers"] == 0
    assert last.consensus["agreement"] is None
    assert last.groupthink["detected"] is False
    assert last.exit["ends"] is False


def test_an_agent_that_leaves_during_the_debate_fails_its_rounds_only() -> None:
    agents = seated()
    debate = played(
        start_debate(topic=TOPIC, mode="delphi", agents=agents, rounds=2, confidence=None, consensus=None), 1
    )
    Agent.objects.filter(pk=agents[1].pk).update(is_active=False)

    played(debate, 1)

    assert debate.status == "completed"
    turn = debate.turns.get(round=2, seat__number=2)
    assert (turn.status, turn.error) == ("failed", "agent 'bob' is inactive; allowed: active agents")


def test_an_agent_in_another_turn_is_waited_for_or_given_up() -> None:
    agents = seated(2)
    debate = ask_rounds(start_debate(topic=TOPIC, mode="delphi", agents=agents, rounds=1, poll=False), None)
    Run.objects.create(agent=agents[0], channel=make_channel(), status="running", lease_owner="elsewhere:1:x",
                       lease_expires_at="2026-01-01T00:00Z")  # fmt: skip

    play(debate, owner=owner_name())

    turn = debate.turns.get(seat__number=1)
    assert turn.status == "failed"
    assert "was left unfinished; manage.py work ends it" in turn.error
    assert Run.objects.get(idempotency_key=f"debate:{debate.pk}:1:1").status == "cancelled", "it does not speak later"
    assert debate.turns.get(seat__number=2).status == "answered"


@pytest.mark.parametrize(("problem", "status"), [(KeyboardInterrupt(), "pending"), (ValueError("a defect"), "errored")])
def test_a_debate_that_was_interrupted_or_crashed_goes_on_where_it_stopped(
    problem: BaseException, status: str, llm_server: LLMServer
) -> None:
    panel = Panel(llm_server)
    debate = ask_rounds(start_debate(topic=TOPIC, mode="adversarial", agents=seated(), rounds=1), None)

    def progress(event: DebateTurn | DebateRound) -> None:
        if isinstance(event, DebateTurn) and (event.round, event.seat.number) == (1, 2):
            raise problem

    with suppress(KeyboardInterrupt):
        play(debate, owner=owner_name(), progress=progress)
    debate.refresh_from_db()
    assert (debate.status, debate.rounds.count()) == (status, 1)
    assert ("a defect" in debate.error) == (status == "errored")

    played(debate)

    assert (debate.status, debate.error) == ("completed", "")
    assert panel.turns == {"ada": 1, "bob": 1, "cleo": 1}, "the poll and one round each"


def test_a_stance_that_a_role_requires_is_no_change_of_mind() -> None:
    free = {"primary": ("no", "yes"), "opposition": ("yes", "no"), "evaluator": ("yes", "yes")}
    script = {
        seat: [{"stance": poll}, {"stance": last}, {"stance": "yes"}]
        for seat, (poll, last) in enumerate(free.values(), 1)
    }
    debate = start_debate(topic=TOPIC, mode="devils-advocate", agents=seated(), script=script, consensus=None)

    after_one = report(played(debate, 1))
    after_two = report(played(debate, 1))

    assert after_one.evidence.rounds[-1].changes == Changes(
        moves=[], stances_changed=0, to_majority=0, from_majority=0, conformity=None
    )
    talking = after_one.decision.what_talking_changed
    assert (talking.seats_changed, talking.seats_by_role) == (0, 2)
    unchanged = (
        "no seats answer otherwise than in the poll; 2 seats hold the stance of a role and count as in the poll."
    )
    assert unchanged in as_markdown(after_one)
    assert [move.seat for row in after_two.evidence.rounds if row.changes for move in row.changes.moves] == [2]
    assert after_two.decision.what_talking_changed.seats_changed == 0  # seat 2 says again what it said in the poll


def test_a_vote_that_only_roles_turn_is_not_changed_by_talking() -> None:
    stances = {1: ("yes", "yes"), 2: ("yes", "no"), 3: ("no", "no")}  # primary, opposition, evaluator
    script = {seat: [{"stance": poll}, {"stance": last}] for seat, (poll, last) in stances.items()}
    debate = start_debate(topic=TOPIC, mode="devils-advocate", agents=seated(), script=script)

    talking = report(played(debate, 1)).decision.what_talking_changed

    assert talking.poll is not None
    assert talking.last is not None
    assert (talking.poll.winner, talking.last.winner) == ("yes", "no")
    assert (talking.same_winner, talking.seats_changed, talking.seats_by_role) == (True, 0, 2)


# -- refused
def _busy_in_a_turn() -> dict[str, Any]:
    agents = seated(2)
    Run.objects.create(agent=agents[0], channel=make_channel(), status="running")
    return {"agents": agents}


def _busy_in_a_debate() -> dict[str, Any]:
    agents = seated(3)
    ask_rounds(start_debate(topic=TOPIC, mode="delphi", agents=agents[:2]), 1)
    return {"agents": agents[1:]}


# What the doors refuse likewise is in `refusals.py`.
REFUSED: dict[str, tuple[Mapping[str, Any] | Callable[[], Mapping[str, Any]], str, str]] = {
    "an agent in a turn": (_busy_in_a_turn, "agents", "'ada' is busy (turn "),
    "an agent in another debate": (_busy_in_a_debate, "agents", "'bob' is busy (debate "),
    "too many rounds": ({"rounds": 101}, "rounds", "allowed: 1 to 100"),
    "a model that cannot be called": ({"models": {"1": "claude-x"}}, "models", "seat 1 cannot be called: "),
    "a setting there is not": ({"speed": 3}, "speed", "not a setting of delphi; allowed: "),
    "an empty model": ({"models": {"1": " "}}, "models", "allowed: 1 to 200 characters"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_an_impossible_debate_is_refused_and_nothing_is_written(
    wrong: Mapping[str, Any] | Callable[[], Mapping[str, Any]], field: str, words: str
) -> None:
    given = dict(wrong() if callable(wrong) else wrong)
    if "agents" not in given:
        given["agents"] = seated(2)
    tables = (Debate, DebateSeat, Channel, ChannelMember)
    before = [model._default_manager.count() for model in tables]

    with pytest.raises(DebateRefused) as refused:
        start_debate(**{"topic": TOPIC, "mode": "delphi", **given})

    assert refused.value.field == field
    assert words in str(refused.value)
    assert [model._default_manager.count() for model in tables] == before


@pytest.mark.parametrize("rounds", [0, 101])
def test_so_many_rounds_cannot_be_asked_for(rounds: int) -> None:
    debate = start_debate(topic=TOPIC, mode="delphi", agents=seated(2))

    with pytest.raises(DebateRefused, match=r"rounds: .* allowed: 1 to 100"):
        ask_rounds(debate, rounds)

    debate.refresh_from_db()
    assert debate.status == "waiting"


# -- seats
def test_roles_and_perspectives_are_stored_with_the_seats() -> None:
    agents = seated(4)
    panel = start_debate(topic=TOPIC, mode="expert-panel", agents=agents, perspectives=["legal", "economic"])
    advocate = start_debate(topic=TOPIC, mode="devils-advocate", agents=[agent.slug for agent in agents])

    assert list(panel.seats.values_list("perspective", flat=True)) == ["legal", "economic", "legal", "economic"]
    assert list(advocate.seats.values_list("role", flat=True)) == ["primary", "opposition", "evaluator", "evaluator"]
    assert [seat.agent for seat in advocate.seats.select_related("agent")] == agents
    assert {member.agent for member in advocate.channel.memberships.all()} == set(agents)


def test_channels_of_debates_on_one_question_are_counted() -> None:
    agents = seated(2)
    slugs = [start_debate(topic=TOPIC, mode="delphi", agents=agents).channel.slug for _ in range(2)]
    other = start_debate(topic="移るべきか", mode="delphi", agents=agents).channel

    assert slugs == ["debate-1", "debate-2"]
    assert other.slug.startswith("debate-")
    assert (other.kind, other.tags, other.synthetic) == ("debate", {"debate": other.slug}, True)


# -- a person between the rounds


@pytest.mark.parametrize("status", ["pending", "running", "completed"])
def test_a_remark_during_a_round_or_after_the_end_is_refused(status: str) -> None:
    debate = start_debate(topic=TOPIC, mode="delphi", agents=seated(2))
    Debate.objects.update(status=status)

    with pytest.raises(DebateRefused, match=f"is {status}; allowed: one that waits for its next round"):
        add_message(debate, text="Hello?", outsider="Pat")

    assert not Message.objects.exists()


# -- deleting
def test_deleting_the_channel_deletes_the_debate_and_all_of_it() -> None:
    debate = debated(2, rounds=1)

    debate.channel.delete()

    assert [model._default_manager.count() for model in (Debate, DebateSeat, DebateRound, DebateTurn, Message)] == [
        0
    ] * 5


def test_an_agent_with_a_seat_stays_and_messages_turns_users_do_not() -> None:
    user = User.objects.create_user("pat")
    debate = start_debate(topic=TOPIC, mode="delphi", agents=seated(2), rounds=1, user=user)
    with pytest.raises(ProtectedError):
        Agent.objects.get(slug="ada").delete()
    played(debate)

    Run.objects.all().delete()
    Message.objects.all().delete()
    user.delete()

    debate.refresh_from_db()
    assert debate.created_by is None
    assert {(turn.status, turn.run, turn.message) for turn in debate.turns.all()} == {("answered", None, None)}
    debate.delete()
    Agent.objects.all().delete()
    assert Channel.objects.filter(kind="debate").exists(), "the conversation stays until it is deleted"


def test_a_debate_whose_channel_is_deleted_while_it_waits_is_gone() -> None:
    debate = ask_rounds(start_debate(topic=TOPIC, mode="delphi", agents=seated(2)), 1)
    Channel.objects.all().delete()

    assert not work_one(owner=owner_name())
    with pytest.raises(Debate.DoesNotExist):
        play(debate, owner=owner_name())
