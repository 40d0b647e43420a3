"""What is logged of interventions, and when they rest (AC-7.1.13)."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent, Channel, LLMCall, Run
from agents.turn.pipeline import Pipeline, Turn
from correction.interventions import TextualPrecondition
from correction.stages import Interventions
from tests.correction.steering import (
    always,
    chatter,
    configure,
    dormant,
    entry_of,
    guidance,
    logs,
    looked_at,
)
from tests.evaluation.judging import answers, entry
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- the log
def test_every_evaluation_is_logged_fired_or_not_ac_7_1_13(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    """Preconditions with their results, whether it fired and why, the nudge, the judge, the run, and the ledger's calls."""
    run = Run.objects.create(agent=ada, channel=office)
    llm_server.respond = answers(lambda text: "good" in text)
    good, bad = (dormant(TextualPrecondition(claim=f"all is {word}"), name=word) for word in ("good", "bad"))

    turn = looked_at(ada, office, good, bad, run=run)

    first, second = logs()
    assert (first.name, first.fired, first.nudge, first.judge) == ("good", True, "Say something else.", "test-model")
    assert (second.name, second.fired, second.nudge) == ("bad", False, "")
    assert second.why == "the textual precondition does not hold"
    assert second.preconditions == [
        {
            "kind": "textual",
            "text": "all is bad",
            "held": False,
            "reasoning": "Two words, no more. “Not me.”",
            "score": None,
            "threshold": None,
            "judge": "test-model",
        }
    ]
    assert (first.agent, first.channel, first.run, first.channel_position) == (ada, office, run, 4)
    calls = {call.work_id: call for call in LLMCall.objects.all()}
    assert set(calls) == {first.work_id, second.work_id}
    call = calls[first.work_id]
    assert (call.purpose, call.mechanism, call.agent, call.run) == ("intervention", "good", ada, run)
    assert entry_of(turn).counters == {"evaluated": 2, "fired": 1, "judge_calls": 2}
    assert [(r["name"], r["fired"]) for r in turn.reports["interventions"]] == [("good", True), ("bad", False)]


def test_however_many_there_are_the_queries_stay_the_same(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    many = [dormant(TextualPrecondition(claim=f"claim {n}"), name=f"n{n}", cooldown_messages=1) for n in range(6)]
    looked_at(ada, office, dormant(TextualPrecondition(claim="warm"), name="warm"))  # what is read once per process

    with CaptureQueriesContext(connection) as queries:
        looked_at(ada, office, *many)

    verbs = [query["sql"].split()[0] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert verbs == ["SELECT"] * 4 + ["INSERT"] * 2  # channel, config, messages, cooldowns; ledger rows, log rows


def test_a_nudge_that_cannot_be_logged_is_not_given(ada: Agent, office: Channel) -> None:
    """What an agent was told must stand in the log; the turn goes on without it."""
    configure(ada, variety_intervention_enabled=True)
    turn = Turn(agent=ada, channel=office, run=Run(agent=ada))  # a run that was never saved: its log row cannot be

    Pipeline([Interventions()]).prepare(turn)

    assert entry_of(turn).status == "failed"
    assert (turn.sections, logs()) == ([], [])


# -- cooldown
def test_after_it_fired_it_rests_for_so_many_messages(ada: Agent, office: Channel) -> None:
    resting = dormant(cooldown_messages=3)
    fired = []
    for _ in range(7):
        turn = looked_at(ada, office, resting)
        fired.append(bool(guidance(turn)))
        say(office, ada, "one more")

    assert fired == [True, False, False, True, False, False, True]
    assert logs()[1].why == "cooldown: fired 1 messages ago, may fire again after 3"
    assert logs()[1].preconditions[0]["held"] is None


def test_a_cooldown_holds_for_one_agent_and_channel_only(ada: Agent, office: Channel) -> None:
    bob, elsewhere = make_agent("bob"), make_channel("elsewhere")
    chatter(elsewhere)
    resting = dormant(cooldown_messages=10)
    assert guidance(looked_at(ada, office, resting))

    assert not guidance(looked_at(ada, office, resting))
    assert guidance(looked_at(bob, office, resting))
    assert guidance(looked_at(ada, elsewhere, resting))
    assert guidance(looked_at(ada, office, dormant(name="other", cooldown_messages=10)))


def test_what_rests_asks_no_judge(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    llm_server.always(json=entry(True))
    resting = dormant(TextualPrecondition(claim="true"), cooldown_messages=2)

    looked_at(ada, office, resting)
    looked_at(ada, office, resting)

    assert llm_server.calls == 1


def test_what_did_not_fire_need_not_rest(ada: Agent, office: Channel) -> None:
    looked_at(ada, office, dormant(always(False), cooldown_messages=5))

    assert guidance(looked_at(ada, office, dormant(cooldown_messages=5)))


def test_a_run_that_was_interrupted_before_its_agent_read_the_nudge_is_nudged_again(
    ada: Agent, office: Channel
) -> None:
    run = Run.objects.create(agent=ada, channel=office)
    looked_at(ada, office, dormant(cooldown_messages=5), run=run)

    assert guidance(looked_at(ada, office, dormant(cooldown_messages=5), run=run))
