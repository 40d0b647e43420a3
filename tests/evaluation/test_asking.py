"""Questions of all kinds are in flight together; what a reply brings up is asked among them; rows are written in few statements."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.models import Agent
from evaluation.asking import GIVE_UP_AFTER, JudgeDown, Tally
from evaluation.bulk import insert_values, update_rows
from evaluation.capture import capture
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.planning import Prepared, RunSpec, prepare_run
from tests.evaluation.conversing import diverse
from tests.evaluation.judged import make_run, make_score
from tests.evaluation.judging import prompt_of
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

EVERYTHING = ("adherence", "consistency", "fluency", "convergence", "ideas_quantity")


def kind_of(body: dict[str, Any]) -> str:
    prompt = prompt_of(body)
    if "What to list" in prompt or "<<<IDEAS" in prompt:
        return "ideas_quantity"
    if "<<<LATER" in prompt:
        return "consistency"
    if "<<<MESSAGE" in prompt:
        return "adherence"
    return "convergence" if "vocabulary_by_agent" in prompt else "fluency"


def test_calls_of_all_dimensions_are_in_flight_together(llm_server: LLMServer, settings: Settings) -> None:
    """None is answered before one of each kind was asked; else the held replies would end in timeouts."""
    settings.LLM_MAX_CONCURRENCY = 40
    settings.LLM_EVALUATION_DEADLINE = 20
    diverse()
    seen: set[str] = set()

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        seen.add(kind_of(body))
        if seen == set(EVERYTHING):
            llm_server.release()
        ideas = [{"idea": f"idea {n}", "description": "", "entries": []} for n in range(2)]
        held = seen != set(EVERYTHING)
        return {"hold": held, **({"json": {"ideas": ideas}} if "What to list" in prompt_of(body) else {})}

    llm_server.respond = respond

    found = capture([RunSpec(agent=Agent.objects.get(slug="ada"), dimensions=EVERYTHING)])

    assert seen == set(EVERYTHING)
    assert found[0].summary.run.status == "completed"
    assert not EvaluationScore.objects.exclude(status__in=("scored", "trivial")).exists()


def test_a_list_is_collapsed_while_other_dimensions_are_still_asked(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY = 2
    diverse()
    order: list[str] = []

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        order.append("collapse" if "<<<IDEAS" in prompt_of(body) else kind_of(body))
        ideas = [{"idea": f"idea {n}", "description": "", "entries": []} for n in range(2)]
        return {"json": {"ideas": ideas}} if order[-1] == "ideas_quantity" else {}

    llm_server.respond = respond

    capture([RunSpec(agent=a, dimensions=EVERYTHING) for a in Agent.objects.all()])

    assert order[0] == "ideas_quantity"
    assert order.index("collapse") < len(order) - 5


def test_a_judge_that_answers_nothing_is_given_up_and_one_answer_keeps_it() -> None:
    tally = Tally()
    for _ in range(GIVE_UP_AFTER - 1):
        tally.note(failed=True, why="timeout: too slow")
    with pytest.raises(JudgeDown, match="answered none of the first calls; the last: timeout: too slow"):
        tally.note(failed=True, why="timeout: too slow")

    other = Tally()
    other.note(failed=False, why="")
    for _ in range(3 * GIVE_UP_AFTER):
        other.note(failed=True, why="timeout")
    assert (other.answered, other.failed) == (1, 3 * GIVE_UP_AFTER)


# --- rows
def planned(run: EvaluationRun, number: int, **fields: Any) -> EvaluationScore:
    return EvaluationScore(
        evaluation_run=run, dimension="fluency", proposition_id=f"p{number}", claim="“é”\n雪", **fields
    )


def statements(captured: CaptureQueriesContext) -> list[str]:
    control = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT")
    return [q["sql"] for q in captured.captured_queries if not q["sql"].startswith(control)]


def test_many_rows_are_inserted_by_one_statement_with_their_defaults() -> None:
    run = make_run(make_agent())
    with CaptureQueriesContext(connection) as captured:
        insert_values(planned(run, 0), ["proposition_id"], ((f"p{n}",) for n in range(300)))

    assert len(statements(captured)) == 1
    first, *_ = EvaluationScore.objects.order_by("pk")
    expected = EvaluationScore.objects.create(
        evaluation_run=run, dimension="fluency", proposition_id="p0", claim="“é”\n雪"
    )
    for field in EvaluationScore._meta.concrete_fields:
        if not field.primary_key:
            assert getattr(first, field.attname) == getattr(expected, field.attname), field.name
    assert EvaluationScore.objects.count() == 301


def test_many_rows_are_updated_by_one_statement_and_only_in_the_fields_named() -> None:
    run = make_run(make_agent())
    rows = [make_score(run, None, proposition_id=f"p{n}", reason="old") for n in range(20)]
    for number, row in enumerate(rows):
        row.status, row.score, row.flaws, row.claim = "scored", number % 10, [f"flaw {number}", "“x”"], "not written"

    with CaptureQueriesContext(connection) as captured:
        assert update_rows(rows, ["status", "score", "flaws"]) == 20

    assert len(statements(captured)) == 1
    stored = EvaluationScore.objects.get(pk=rows[13].pk)
    assert (stored.status, stored.score, stored.flaws) == ("scored", 3, ["flaw 13", "“x”"])
    assert (stored.claim, stored.reason) == ("Ada is dry", "old")


def test_rows_that_are_gone_are_not_made_again() -> None:
    run = make_run(make_agent())
    rows = [make_score(run, 5, proposition_id=f"p{n}") for n in range(3)]
    EvaluationScore.objects.filter(pk=rows[1].pk).delete()

    assert update_rows(rows, ["score"]) == 2
    assert EvaluationScore.objects.count() == 2


@pytest.mark.parametrize("change", [{"score": 12}, {"status": "pending"}], ids=str)
def test_a_value_that_is_not_allowed_changes_nothing(change: dict[str, Any]) -> None:
    run = make_run(make_agent())
    rows = [make_score(run, 5, proposition_id=f"p{n}") for n in range(2)]
    rows[0].score = 6
    for name, value in change.items():
        setattr(rows[1], name, value)

    with pytest.raises(IntegrityError):
        update_rows(rows, ["score", "status"])

    assert list(EvaluationScore.objects.order_by("pk").values_list("score", flat=True)) == [5, 5]


def test_nothing_needs_no_statement() -> None:
    like = planned(make_run(make_agent()), 0)
    with CaptureQueriesContext(connection) as captured:
        insert_values(like, ["proposition_id"], [])
        assert update_rows([], ["score"]) == 0
    assert not captured.captured_queries


def test_agents_prepared_together_share_the_runs_of_their_channels(llm_server: LLMServer) -> None:
    diverse()
    channels: Prepared = []
    specs = [RunSpec(agent=a, dimensions=("convergence",)) for a in Agent.objects.order_by("slug")]

    first, *others = [prepare_run(spec, channels=channels)[0] for spec in specs]
    other_options, _ = prepare_run(
        RunSpec(agent=specs[0].agent, dimensions=("convergence",), repeats=2), channels=channels
    )

    assert EvaluationRun.objects.filter(channel__isnull=False).count() == 2, "one for each way of judging"
    shared = first.channel_runs.get()
    assert [run.channel_runs.get() for run in others] == [shared] * len(others)
    assert other_options.channel_runs.get() != shared
    assert re.search(r"\d", str(shared))
