"""Which run is taken up again, by whom, and what the queue does."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from agents.models import Agent
from agents.personas.persona import TraitValue, save_persona
from evaluation.models import EvaluationRun
from evaluation.runs.execute import capture, execute, work_one
from evaluation.runs.planning import prepare_run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.measuring import measured, spec, statuses
from tests.factories import speaking
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- what is taken up again, and what is not
@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"samples": 2},
        {"per_call": 1},
        {"where": {"build": "41"}},
        {"position_bins": ((1, 5), (6, None))},
        {"is_baseline": False},
        {"judge": "other-model"},
        {"dimensions": ("fluency",)},
    ],
    ids=str,
)
def test_another_question_is_another_run(llm_server: LLMServer, ada: Agent, change: dict[str, Any]) -> None:
    run, resumed = prepare_run(spec(ada))
    same, again = prepare_run(spec(ada))
    other, taken_up = prepare_run(spec(ada, **change))

    assert (resumed, again, taken_up) == (False, True, False)
    assert same == run
    assert other != run


def test_a_run_older_than_a_day_is_not_taken_up(ada: Agent) -> None:
    run, _ = prepare_run(spec(ada))
    EvaluationRun.objects.update(created_at=timezone.now() - timedelta(hours=25))

    other, resumed = prepare_run(spec(ada))

    assert (other != run, resumed) == (True, False)


def test_changed_propositions_or_persona_make_a_new_run(ada: Agent, propositions: PropositionFolder) -> None:
    first, _ = prepare_run(spec(ada))
    save_persona(agent=ada, traits=[TraitValue("loud")], note="edit")
    second, _ = prepare_run(spec(ada))
    propositions.claims("adherence/_default.yaml", "voice")
    third, _ = prepare_run(spec(ada))

    assert len({first.pk, second.pk, third.pk}) == 3


def test_a_planned_run_is_cancelled_when_its_propositions_changed(
    llm_server: LLMServer, ada: Agent, propositions: PropositionFolder
) -> None:
    run, _ = prepare_run(spec(ada))
    propositions.claims("adherence/_default.yaml", "voice", "humour")

    execute([run])

    assert (run.status, llm_server.calls) == ("cancelled", 0)
    assert "proposition files" in run.error


def test_a_planned_run_is_cancelled_when_the_persona_changed(llm_server: LLMServer, ada: Agent) -> None:
    """Or half of it would be judged against another persona than the one its digest names."""
    run, _ = prepare_run(spec(ada))
    save_persona(agent=ada, traits=[TraitValue("loud")], note="edit")

    execute([EvaluationRun.objects.get(pk=run.pk)])

    run.refresh_from_db()
    assert (run.status, llm_server.calls) == ("cancelled", 0)
    assert "persona changed" in run.error


def test_broken_proposition_files_fail_the_run_and_it_can_be_taken_up(
    llm_server: LLMServer, ada: Agent, propositions: PropositionFolder
) -> None:
    run, _ = prepare_run(spec(ada))
    broken = propositions.write("adherence/ada.yml", "propositions: 3\n")
    execute([run])
    assert run.status == "failed"
    assert "ada.yml:1: propositions" in run.error
    broken.unlink()

    assert measured(ada).summary.run.status == "completed"
    assert EvaluationRun.objects.count() == 1


# -- who holds a run
def held_by(run: EvaluationRun, owner: str, *, seconds: int) -> None:
    expires = timezone.now() + timedelta(seconds=seconds)
    EvaluationRun.objects.filter(pk=run.pk).update(status="running", lease_owner=owner, lease_expires_at=expires)


def test_a_run_that_another_process_holds_is_left_alone(llm_server: LLMServer, ada: Agent) -> None:
    run, _ = prepare_run(spec(ada))
    held_by(run, "elsewhere:1:abc", seconds=60)

    found = measured(ada)

    assert found.held_elsewhere
    assert (found.summary.run, found.summary.run.status, llm_server.calls) == (run, "running", 0)
    assert statuses() == Counter({"pending": 6})


def test_a_crash_is_an_error_that_can_be_taken_up(llm_server: LLMServer, ada: Agent) -> None:
    def crash(run: EvaluationRun, done: int) -> None:
        raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError):
        capture([spec(ada)], progress=crash)
    run = EvaluationRun.objects.get()
    assert (run.status, run.error, run.lease_owner) == ("errored", "RuntimeError: the terminal is gone", "")

    assert measured(ada).summary.run.status == "completed"
    assert EvaluationRun.objects.get().attempt == 2


def test_runs_whose_turn_has_not_come_keep_their_claims(
    llm_server: LLMServer, settings: Settings, chatty: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or another process would take over the last agents of a long capture and judge them a second time."""
    settings.LLM_MAX_CONCURRENCY = 1
    monkeypatch.setattr("evaluation.runs.judging.HEARTBEAT", 0)
    last = speaking("last", ["No."])
    kept: list[bool] = []

    def look(run: EvaluationRun, done: int) -> None:
        waiting = EvaluationRun.objects.filter(agent=last)
        kept.append(waiting.filter(lease_expires_at__gt=timezone.now()).exists())
        waiting.update(lease_expires_at=timezone.now() - timedelta(seconds=1))

    execute([prepare_run(asked)[0] for asked in (spec(chatty), spec(last))], progress=look)

    assert kept[:15] == [True] * 15


# -- the queue


def test_a_worker_takes_up_a_lost_run_and_no_other(llm_server: LLMServer, ada: Agent) -> None:
    run, _ = prepare_run(spec(ada))
    held_by(run, "elsewhere:1:abc", seconds=60)
    assert not work_one(owner="me:1:x")
    held_by(run, "elsewhere:1:abc", seconds=-1)

    assert work_one(owner="me:1:x")

    run.refresh_from_db()
    assert (run.status, run.attempt) == ("completed", 1)
