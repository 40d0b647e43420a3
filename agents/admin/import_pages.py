"""What the page of an import shows: where it stands, what was found, what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.import_forms import FORMAT_NAMES, Speakers, options_of, suggested_agents
from agents.admin.import_found import found_context, result_context
from agents.imports.choices import Choices, choices_of, may_make_speakers
from agents.imports.control import lacks_agent
from agents.imports.uploads import are_kept
from agents.models import Import
from agents.transcripts.prepare import Likely
from agents.worker_heartbeat import alive

Status, Step = Import.Status, Import.Step
UNREAD = "Why is shown to whoever handed it in, and to those who may view messages."
STEPS = ("Hand in", "Check", "Agree", "Import", "Done")


def state_badge(job: Import) -> SafeString:
    """Where an import stands, in words for people."""
    words: dict[tuple[str, str], tuple[str, display.Tone]] = {
        (Step.CHECK, Status.PENDING): ("waits to be checked", "plain"),
        (Step.CHECK, Status.RUNNING): ("being checked", "info"),
        (Step.CHECK, Status.COMPLETED): ("waits for a decision", "accent"),
        (Step.CHECK, Status.FAILED): ("cannot be imported as it is", "warning"),
        (Step.IMPORT, Status.PENDING): ("waits for a worker", "plain"),
        (Step.IMPORT, Status.RUNNING): ("being imported", "info"),
        (Step.IMPORT, Status.COMPLETED): ("imported", "good"),
    }
    label, tone = words.get((job.step, job.status), (job.get_status_display(), display.STATUS_TONES[job.status]))
    return display.badge(label, tone)


def outcome(job: Import) -> str:
    """What came of it so far, in a few words."""
    if job.kind == Import.Kind.PERSONAS and job.is_done:
        return _plural(job.stored, "agent") + " made or changed"
    if job.is_done or job.stored:
        return _plural(job.stored, "message") + " stored"
    if job.waits_for_decision:
        return f"{job.expected:,} to import"
    return ""


def format_name(job: Import) -> str:
    """How its files are read."""
    if job.kind == Import.Kind.PERSONAS:
        return "personas"
    return FORMAT_NAMES.get(job.format, "transcript")


def steps_of(job: Import | None) -> list[dict[str, Any]]:
    """The way of an import, with the point at which it is."""
    at = (
        0 if job is None else 4 if job.is_done else 3 if job.step == Step.IMPORT else 2 if job.waits_for_decision else 1
    )
    return [
        {"label": label, "done": number < at or at == 4, "here": number == at} for number, label in enumerate(STEPS)
    ]


def page_context(
    job: Import, *, user: User, data: Any = None, bound: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the template shows.

    Args:
        job: The import.
        user: Who looks: only who handed it in decides, and what was said is shown to those who may read messages.
        data: What was typed into the forms, when it is shown again.
        bound: Forms that were filled in wrongly, shown instead of fresh ones.
    """
    choices, mine = choices_of(job.choices), job.created_by_id == user.pk
    kept = not job.is_done and are_kept(job)
    may_read = mine or user.has_perm("agents.view_message")
    personas = job.kind == Import.Kind.PERSONAS
    context: dict[str, Any] = {
        "job": job,
        "steps": steps_of(job),
        "state": state_badge(job),
        "files": [{"name": display.isolated(file.name), "size": size_of(file.size)} for file in job.files.all()[:50]],
        "format": format_name(job),
        "handed_in": display.moment(job.created_at),
        "by": display.isolated(job.created_by) if job.created_by else "an account that is gone",
        "mine": mine,
        "kept": kept,
        "personas": personas,
        "outcome": outcome(job),
        "error": display.visible(job.error if may_read or not job.error else UNREAD),  # it may quote the file
        "urls": {name: url_of(job, name) for name in ("choose", "cancel", "again", "discard")},
        "progress": _progress(job),
        "can_cancel": job.status in Import.OPEN and (mine or user.is_superuser),
        "can_discard": kept and mine and job.status not in Import.OPEN,
        "can_retry": kept
        and mine
        and job.step == Step.IMPORT
        and job.status in (Status.FAILED, Status.ERRORED, Status.CANCELLED),
        "can_choose": kept and mine and job.step == Step.CHECK and job.status in Import.FINAL,
        "problem": _problem(job) if may_read else None,
    }
    if context["can_choose"]:
        context |= dict(bound or forms_of(job, choices, user, data))
        context["suggested"] = [] if personas else suggested_agents()
        context["reset"] = choices.reset
    if job.waits_for_decision:
        context |= found_context(job, choices, may_read=may_read)
    if job.result:
        context["result"] = result_context(job)
    return context


def forms_of(job: Import, choices: Choices, user: User, data: Any = None) -> dict[str, Any]:
    """The forms of the choices, filled in with those that were made."""
    if job.kind == Import.Kind.PERSONAS:
        return {"options": options_of(data, choices=choices, found={})}
    speakers = job.found.get("speakers", ())
    return {
        "options": options_of(data, choices=choices, found=job.found),
        "speakers": Speakers(
            data, speakers=speakers, choices=choices, may_make=may_make_speakers(user), likely=_proposals(job, choices)
        ),
    }


def _proposals(job: Import, choices: Choices) -> dict[str, Likely]:
    """Who is likely an agent, as long as no speaker was decided about."""
    if not lacks_agent(job) or choices.agents or choices.made:
        return {}
    return {name: Likely(*guess) for name, guess in job.found.get("likely", {}).items()}


def size_of(size: int) -> str:
    """Bytes for people."""
    return (
        f"{size / 1024 / 1024:,.1f} MB".replace(".0 MB", " MB")
        if size >= 1024 * 1024
        else f"{max(size, 1) / 1024:,.1f} kB"
        if size >= 1024
        else f"{size} bytes"
    )


def url_of(job: Import, name: str) -> str:
    return reverse(f"admin:agents_import_{name}", args=[job.pk])


def _progress(job: Import) -> dict[str, Any] | None:
    if job.status not in Import.OPEN:
        return None
    share = f"{min(100, 100 * job.done // job.total)} %" if job.total else ""
    return {
        "url": url_of(job, "progress"),
        "waits": job.status == Status.PENDING,
        "nobody": job.status == Status.PENDING and not alive().exists(),
        "doing": job.doing or ("Checking" if job.step == Step.CHECK else "Importing"),
        "done": job.done,
        "total": job.total,
        "share": share,
        "counts": job.doing in ("Importing", "Comparing"),
    }


def _problem(job: Import) -> dict[str, Any] | None:
    problem = job.found.get("problem")
    if job.status != Status.FAILED or not problem or not problem["excerpt"]:
        return None
    return {
        "lines": [
            {"number": n, "text": display.visible(text), "bad": n == problem["line"]} for n, text in problem["excerpt"]
        ]
    }


def _plural(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
