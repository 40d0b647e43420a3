"""Suggestions of propositions: what is asked for; queued by the console as a job, and written by a worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from django.conf import settings
from django.db import transaction
from pydantic import AfterValidator, BaseModel, Field

from agents.bodies import NamedAgents
from agents.kit.models.lease import LeaseLost
from agents.kit.use_cases import FieldDisplay
from agents.kit.work.queues import wake_workers
from agents.models import Agent
from evaluation.drafting.editing import NO_FOLDER, CannotSave, team_folder
from evaluation.drafting.suggesting import MOST, Suggestions, suggest_for, write_suggestions
from evaluation.jobs import lease
from evaluation.models import Job, is_heuristic
from evaluation.runs.request import check_judge, judge_choices

Status = Job.Status


def model_choices() -> list[tuple[str, str]]:
    """Return the judges that can suggest something: models."""
    return [(name, label) for name, label in judge_choices() if not is_heuristic(name)]


class SuggestionsRequest(NamedAgents):
    """About which agents propositions are suggested, and by what."""

    max: Annotated[int, FieldDisplay(label="Suggestions")] = Field(
        MOST, ge=1, le=50, description=f"most suggestions per agent, 1 to 50 (default: {MOST})"
    )
    model: Annotated[str, AfterValidator(check_judge), FieldDisplay(choices=model_choices, metavar="MODEL")] = Field(
        "", max_length=200, description="reads the personas (default: the configured judge)"
    )


class Suggested(BaseModel):
    """The outcome of asking for suggestions about one agent: how many can be used and were written, and why there are no more."""

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
    """Ask about a few agents at a time, write what can be used to files, and store in the job what came of it after each round.

    Agents that were asked about before the job was interrupted are not asked about again; deleted ones are passed over.

    Returns:
        The columns of the job's end: failed, where for none of the agents anything was written; completed otherwise.

    Raises:
        LeaseLost: The lease is not ours any more.
        ValueError, PropositionError: As `suggest_for`.
    """
    folder = team_folder()
    if folder is None:
        return {"status": Status.FAILED, "error": NO_FOLDER}
    rows = list(job.result.get("agents", []))  # of rounds before, where the job was interrupted
    agents_done = {row["agent"] for row in rows}
    agents = Agent.objects.filter(pk__in=job.options["agents"]).order_by("slug")
    not_asked = [agent for agent in agents if agent.slug not in agents_done]
    at_once = settings.LLM_MAX_CONCURRENCY
    for start in range(0, len(not_asked), at_once):
        if not job.extend_lease(owner=owner, lease=lease()):
            raise LeaseLost(f"{job} is not held by {owner} any more")
        round_agents = not_asked[start : start + at_once]
        for suggestions in suggest_for(agents=round_agents, model=job.options["model"], most=job.options["most"]):
            rows.append(_write(suggestions, folder).model_dump())
        job.result = {"agents": rows}
        Job.objects.filter(pk=job.pk, lease_owner=owner).update(result=job.result, done=len(rows))
    # Nothing was written, and there is a reason why.
    failed = [row["agent"] for row in rows if row["why"] and not row["written"]]
    if rows and len(failed) == len(rows):
        error = f"no suggestions for {', '.join(failed)}: {rows[0]['why']}"
        return {"status": Status.FAILED, "error": error, "result": {"agents": rows}}
    return {"status": Status.COMPLETED, "error": "", "result": {"agents": rows}}


def _write(suggestions: Suggestions, folder: Path) -> Suggested:
    """Write the suggestions about an agent and return what came of it; where the file cannot be written, none and why."""
    written = len(suggestions.usable)
    why = suggestions.reason
    try:
        write_suggestions(suggestions, folder=folder)
    except CannotSave as problem:
        written = 0
        why = str(problem)
    return Suggested(agent=suggestions.agent, written=written, dropped=len(suggestions.dropped), why=why)
