"""Counting ideas when something goes wrong: no answer, a bad one, nothing to count, a process that stops."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from evaluation.models import EvaluationScore, IdeaPart
from evaluation.runs.execute import execute
from evaluation.runs.ideas import distinct_ideas
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from tests.evaluation.brainstorming import brainstorm, lister
from tests.evaluation.conversing import ideas
from tests.evaluation.judging import prompt_of
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def judge(llm_server: LLMServer) -> LLMServer:
    llm_server.respond = lister
    return llm_server


# -- what goes wrong
def test_an_unreadable_part_leaves_no_count_and_alone_is_asked_again(judge: LLMServer, settings: Settings) -> None:
    settings.IDEAS_PART_CHARACTERS = 100
    channel = brainstorm()
    judge.respond = lambda body: {"status": 500} if "Part 2 of" in prompt_of(body) else lister(body)

    broken = ideas(channel)

    assert broken.dimensions["ideas_quantity"].count is None
    assert broken.run.status == "failed"
    assert "unavailable: part 2 of" in broken.run.error
    before = judge.calls
    judge.respond = lister

    mended = ideas(channel)

    assert (mended.run.pk, mended.dimensions["ideas_quantity"].count) == (broken.run.pk, 4)
    assert judge.calls - before == 2, "the part, and the collapse"


def test_an_answer_that_is_none_leaves_no_count_ac_6_6_6(llm_server: LLMServer) -> None:
    llm_server.always(json={"ideas": "seven"})

    found = ideas(brainstorm())

    row = EvaluationScore.objects.get()
    assert (row.status, row.count, found.overall_score) == ("unscored", None, None)
    assert row.reason.startswith("malformed: part 1 of 1")


def test_a_collapse_that_names_ideas_there_are_not_is_no_answer(judge: LLMServer) -> None:
    judge.respond = lambda body: (
        {"json": {"same": [{"idea": 99, "same_as": 1}]}} if "<<<IDEAS" in prompt_of(body) else lister(body)
    )

    ideas(brainstorm())

    reason = EvaluationScore.objects.get().reason
    assert reason.startswith("malformed: ")
    assert "99 and" in reason


def test_entries_that_do_not_exist_cost_nothing(llm_server: LLMServer) -> None:
    llm_server.always(json={"ideas": [{"idea": "a pond", "description": "", "entries": [0, 2, 99, -1, 2]}]})

    found = ideas(brainstorm())

    assert [idea.positions for idea in distinct_ideas(found.run)] == [(2,)]


def test_an_interrupted_count_goes_on_where_it_stopped(judge: LLMServer, settings: Settings) -> None:
    settings.IDEAS_PART_CHARACTERS, settings.LLM_MAX_CONCURRENCY = 1, 1
    channel = brainstorm()
    run, _ = prepare_run(RunSpec(channel=channel, dimensions=("ideas_quantity",)))
    judge.respond = lambda body: lister(body) if judge.calls <= 4 else {"status": 500}
    execute([run])
    read = IdeaPart.objects.filter(listed=True).count()
    judge.respond, before = lister, judge.calls

    execute([run])

    run.refresh_from_db()
    assert read == 4
    assert judge.calls - before == 6 + 1, "the six parts that were missing, and the collapse"
    assert run.status == "completed"
    assert EvaluationScore.objects.get().count == 4
