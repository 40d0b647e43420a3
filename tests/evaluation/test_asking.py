"""Questions of all kinds are in flight together; what a reply brings up is asked among them; rows are written in few statements."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from agents.kit.bulk import insert_values, update_rows
from agents.models import Agent
from evaluation.judge.asking import GIVE_UP_AFTER, JudgeHealth
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.planning import PreparedChannel, prepare_run
from evaluation.runs.spec import RunSpec
from tests import zygote
from tests.evaluation.conversing import diverse
from tests.evaluation.judged import make_run, make_score
from tests.evaluation.judging import prompt_of
from tests.evaluation.processes import ROOT, environment, rows, script
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


EVERYTHING_OF_ADA = f"""
from agents.models import Agent
from evaluation.runs.execute import capture
from evaluation.runs.planning import RunSpec
from tests.evaluation.conversing import diverse
diverse()
capture([RunSpec(agent=Agent.objects.get(slug="ada"), dimensions={EVERYTHING})])
"""


@pytest.mark.slow
def test_calls_of_all_dimensions_are_in_flight_together_ac_6_0_4(migrated_file: Path, tmp_path: Path) -> None:
    """None is answered before one of each kind was asked; else the held replies would end in timeouts."""
    expected = set(EVERYTHING)
    database = tmp_path / "db.sqlite3"
    database.write_bytes(migrated_file.read_bytes())
    seen: set[str] = set()

    with LLMServer() as server:

        def respond(body: dict[str, Any]) -> dict[str, Any]:
            seen.add(kind_of(body))
            if seen == expected:
                server.release()
            ideas = [{"idea": f"idea {n}", "description": "", "entries": []} for n in range(2)]
            return {
                "hold": seen != expected,
                **({"json": {"ideas": ideas}} if "What to list" in prompt_of(body) else {}),
            }

        server.respond = respond
        settings = environment(database, server, LLM_MAX_CONCURRENCY="40", WORKER_THREADS="4")
        done = zygote.run(
            script(EVERYTHING_OF_ADA),
            cwd=ROOT,
            env=settings,
            capture_output=True,
            text=True,
            timeout=120,
        )

    assert done.returncode == 0, done.stderr
    assert seen == expected
    assert set(rows(database, "select status from evaluation_runs")) == {("completed",)}
    assert not rows(database, "select 1 from evaluation_scores where status not in ('scored', 'trivial')")


def test_a_judge_without_answers_is_down_and_one_answer_prevents_it() -> None:
    health = JudgeHealth()
    for number in range(GIVE_UP_AFTER):
        assert not health.down, number
        health.note(failed=True, why="timeout: too slow")
    assert "too slow" in health.down

    other = JudgeHealth()
    other.note(failed=False, why="")
    for _ in range(3 * GIVE_UP_AFTER):
        other.note(failed=True, why="timeout")
    assert not other.down


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


def test_one_statement_updates_many_rows_and_only_the_named_fields() -> None:
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


def test_agents_prepared_together_share_the_runs_of_their_channels(llm_server: LLMServer) -> None:
    diverse()
    channels: list[PreparedChannel] = []
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
