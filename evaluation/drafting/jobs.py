"""Suggestions of propositions: what is asked for; queued by the console as a job, and written by a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from django.conf import settings
from django.db import transaction
from pydantic import AfterValidator, BaseModel, Field

from agents.bodies import NamedAgents
from agents.kit.models.lease import LeaseLost
from agents.kit.use_cases import Shown
from agents.kit.work.queues import wake_workers
from agents.models import Agent
from evaluation.drafting.editing import NO_FOLDER, CannotSave, team_folder
from evaluation.drafting.suggesting import MOST, suggest_for, write_suggestions
from evaluation.jobs import lease
from evaluation.models import Job, is_heuristic
from evaluation.runs.request import check_judge, judge_choices

Status = Job.Status


def model_choices() -> list[tuple[str, str]]:
    """Return the judges that can suggest something: models."""
    return [(name, label) for name, label in judge_choices() if not is_heuristic(name)]


class SuggestionsRequest(NamedAgents):
    """About which agents propositions are suggested, and by what."""

    max: Annotated[int, Shown(label="Suggestions")] = Field(
        MOST, ge=1, le=50, description=f"most suggestions per agent, 1 to 50 (default: {MOST})"
    )
    model: Annotated[str, AfterValidator(check_judge), Shown(choices=model_choices, metavar="MODEL")] = Field(
        "", max_length=200, description="reads the personas (default: the configured judge)"
    )


class Suggested(BaseModel):
    """What came of asking for suggestions about one agent: how many can be used and were written, and why there are no more."""

    agent: str
    written: int
    dropped: int
    why: str


def queue_suggestions(*, agents: Sequence[Agent], most: int, model: str = "", user: Any = None) -> Job:
    """Have a worker ask a model for propositions about some agents; they are written as suggestions, which nothing judges.

    Raises:
        ValueError: There is no folder to write to.
    """
    if team_folder() is None:
        raise ValueError(NO_FOLDER)
    options = {"agents": [agent.pk for agent in agents], "most": most, "model": model}
    with transaction.atomic():
        job: Job = Job.objects.create(kind=Job.Kind.SUGGESTIONS, options=options, total=len(agents), created_by=user)
        transaction.on_commit(wake_workers)
    return job


def suggest(job: Job, *, owner: str) -> dict[str, Any]:
    """Ask about a few agents at a time, and store what came of it after each round."""
    folder, rows = team_folder(), list(job.result.get("agents", []))
    if folder is None:
        return {"status": Status.FAILED, "error": NO_FOLDER}
    asked = {row["agent"] for row in rows}
    left = [one for one in Agent.objects.filter(pk__in=job.options["agents"]).order_by("slug") if one.slug not in asked]
    at_once = settings.LLM_MAX_CONCURRENCY
    for agents in (left[start : start + at_once] for start in range(0, len(left), at_once)):
        if not job.extend_lease(owner=owner, lease=lease()):
            raise LeaseLost(f"{job} is not held by {owner} any more")
        for one in suggest_for(agents=agents, model=job.options["model"], most=job.options["most"]):
            why, written = one.reason, len(one.usable)
            try:
                write_suggestions(one, folder=folder)
            except CannotSave as problem:
                why, written = str(problem), 0
            rows.append(Suggested(agent=one.agent, written=written, dropped=len(one.dropped), why=why).model_dump())
        job.result = {"agents": rows}
        Job.objects.filter(pk=job.pk, lease_owner=owner).update(result=job.result, done=len(rows))
    failed = [row["agent"] for row in rows if row["why"] and not row["written"]]
    error = f"no suggestions for {', '.join(failed)}: {rows[0]['why']}" if rows and len(failed) == len(rows) else ""
    return {"status": Status.FAILED if error else Status.COMPLETED, "error": error, "result": {"agents": rows}}
