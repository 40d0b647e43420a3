"""What self-consistency compares with what: the window, the history, and what makes two messages comparable."""

from __future__ import annotations

from datetime import timedelta

import pytest

from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import execute
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from evaluation.windows import parse_window
from tests.evaluation.pairing import before_and_now, consistency, pairs
from tests.factories import MONDAY, make_agent, make_channel, say, speaking, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- what is compared with what
def test_without_a_window_the_newer_half_is_compared_with_the_older(llm_server: LLMServer, one_claim: object) -> None:
    ada = speaking("ada", ["one", "two", "three", "four", "five"])

    consistency(ada, where={})

    assert {now for now, _ in pairs()} <= {"three", "four", "five"}
    assert {before for _, before in pairs()} == {"one", "two"}


def test_a_window_is_compared_with_all_that_was_said_before_it(llm_server: LLMServer, one_claim: object) -> None:
    ada = make_agent("ada")
    before_and_now(ada, ["a", "b"], ["c", "d"])

    consistency(ada, where={}, window=parse_window("last:1"))

    ((now, before),) = pairs()
    assert now == "d"
    assert before in "abc"


def test_a_history_of_ones_own_choice(llm_server: LLMServer, one_claim: object) -> None:
    ada, office = make_agent("ada"), make_channel()
    talk(ada, ["long ago"], channel=office, tags={"build": "39"})
    before_and_now(ada, ["before"], ["now"], office)

    consistency(ada, history_where={"build": "39"})

    assert pairs() == [("now", "long ago")]
    run = EvaluationRun.objects.get()
    assert (run.history, run.history_where) == ("before", {"build": "39"})


def test_undated_messages_come_before_those_stored_after_them(llm_server: LLMServer, one_claim: object) -> None:
    ada, office = make_agent("ada"), make_channel()
    say(office, ada, "once upon a time", said_at=MONDAY - timedelta(weeks=9))
    before_and_now(ada, [], ["now"], office)

    consistency(ada)

    assert pairs() == [("now", "once upon a time")]


def test_rare_words_make_a_topic_and_frequent_ones_do_not(llm_server: LLMServer, one_claim: object) -> None:
    ada = make_agent("ada")
    filler = [f"it is the thing that we do on day {n}" for n in range(8)]
    before_and_now(
        ada, [*filler, "Raccoons again."], ["it is the thing that we do about the raccoons, again"], make_channel()
    )

    consistency(ada)

    assert pairs()[0][1] == "Raccoons again."


def test_a_pair_whose_message_was_deleted_is_not_judged(llm_server: LLMServer, one_claim: object) -> None:
    ada = make_agent("ada")
    old, _ = before_and_now(ada, ["a", "b"], ["a", "b"])
    run, _ = prepare_run(RunSpec(agent=ada, dimensions=("consistency",), where={"build": "41"}))
    old[0].delete()

    execute([run])

    reasons = {row.status: row.reason for row in EvaluationScore.objects.all()}
    assert reasons["scored"] == ""
    assert "was deleted" in reasons["unscored"]
