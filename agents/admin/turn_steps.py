"""The steps of a turn in a few words, as the chat shows them while it runs and folds them under the answer afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from agents.kit.console.display import Tone, shortened
from agents.kit.models import owner_is_dead
from agents.models import Run, RunMessage, RunStep

LONGEST_TEXT = 200  # characters of a feedback or an error
CUT_OFF = "the worker stopped during it"
TONES: dict[str, Tone] = {"failed": "bad", "interrupted": "warning", "running": "info"}  # of stages; ran: no badge


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """A line of the list.

    Attributes:
        what: What was done, or the name of a stage.
        state, tone: A badge; empty where all is as usual.
        ms: None while it is not known.
        text: A reason, an error, or the feedback with which a draft was sent back; of agents and judges.
        since: When it began, of a step that goes on.
    """

    what: str
    state: str = ""
    tone: Tone = "plain"
    ms: int | None = None
    text: str = ""
    since: datetime | None = None


def steps_of_turns(runs: Sequence[Run], steps: Mapping[int, Sequence[RunStep]]) -> dict[int, list[ShownStep]]:
    """Return the steps of turns by the key of the turn; one query where a turn is running.

    Args:
        steps: The stored steps of each of them, in order.
    """
    running = [run for run in runs if run.status == Run.Status.RUNNING]
    exchange = RunMessage.objects.filter(run__in=running).order_by("number") if running else RunMessage.objects.none()
    last_role = dict(exchange.values_list("run_id", "role"))  # of each: the last one stays
    steps_of_run = {}
    for run in runs:
        steps_of_run[run.pk] = list(_steps(run, steps.get(run.pk, ()), last_role.get(run.pk, "")))
    return steps_of_run


def _steps(run: Run, steps: Sequence[RunStep], last_role: str) -> Iterator[ShownStep]:
    """Yield what a turn did, in order, and what it does now.

    Args:
        last_role: Of the newest entry of the exchange with the model; empty: it has not begun.
    """
    for entry in run.trace:
        if entry["phase"] == "prepare" and entry["status"] != "running":
            yield from _stage(entry)
    attempt = 1
    for step in steps:
        if step.kind == "model_call":
            yield _model_call(step, attempt)
            continue
        yield from _tool_call(step)
        committed = step.detail.get("committed")
        if committed is False:
            attempt += 1
        elif committed is True:
            attempt = 1
    for entry in run.trace:
        # Reviews that ended are parts of their steps.
        is_cut_off = entry["phase"] == "review" and entry["status"] == "interrupted"
        if is_cut_off or (entry["phase"] == "finish" and entry["status"] == "failed"):
            yield from _stage(entry)
    yield from _now(run, steps, last_role, attempt)


def _stage(entry: Mapping[str, Any]) -> Iterator[ShownStep]:
    """Yield what a stage did; nothing where it had nothing to do."""
    status = entry["status"]
    if status == "skipped":
        return
    text = str(entry.get("why", ""))
    ms: int | None = round(entry["ms"])
    if status == "interrupted":
        text = CUT_OFF
        ms = None
    yield ShownStep(
        what=str(entry["stage"]),
        state="" if status == "ran" else status,
        tone=TONES.get(status, "plain"),
        ms=ms,
        text=shortened(text, LONGEST_TEXT),
    )


def _model_call(step: RunStep, attempt: int) -> ShownStep:
    status = step.detail.get("status") or "ok"
    has_failed = status != "ok"
    return ShownStep(
        what=_asking("asked the model", attempt),
        state=status if has_failed else "",
        tone="bad" if has_failed else "plain",
        ms=step.duration_ms,
        text=shortened(str(step.detail.get("error", "")), LONGEST_TEXT),
    )


def _asking(what: str, attempt: int) -> str:
    return what if attempt == 1 else f"{what}, attempt {attempt}"


def _tool_call(step: RunStep) -> Iterator[ShownStep]:
    """Yield the stages that reviewed a draft, then whether it was sent; for any other tool yield its call."""
    detail = step.detail
    committed = detail.get("committed")
    reviews: list[ShownStep] = []
    for entry in detail.get("stages", []):
        if entry["phase"] == "review":
            reviews += _stage(entry)
    yield from reviews
    reviewed_ms = sum(review.ms or 0 for review in reviews)
    own_ms = max(0, (step.duration_ms or 0) - reviewed_ms)
    if committed is False:
        feedback = shortened(str(detail.get("feedback", "")), LONGEST_TEXT)
        yield ShownStep(what="draft", state="sent back", tone="warning", ms=own_ms, text=feedback)
    elif committed is True:
        outcome = str(detail.get("outcome", ""))
        yield ShownStep(what="sent", state="" if outcome == "sent" else outcome, ms=own_ms)
    else:
        is_error = bool(detail.get("is_error"))
        yield ShownStep(
            what=str(detail.get("tool") or step.kind),
            state="not done" if is_error else "",
            tone="bad" if is_error else "plain",
            ms=step.duration_ms,
            text=shortened(str(detail.get("reason", "")), LONGEST_TEXT),
        )


def _now(run: Run, steps: Sequence[RunStep], last_role: str, attempt: int) -> Iterator[ShownStep]:
    """Yield what a turn does now, or what it did when its worker stopped."""
    stage = ""
    if run.trace and run.trace[-1]["status"] == "running":
        stage = str(run.trace[-1]["stage"])
    if run.status != Run.Status.RUNNING:
        if stage:  # it went back to the queue, or ended, without another lease
            yield ShownStep(what=stage, state="interrupted", tone="warning", text=CUT_OFF)
        return
    if stage:
        what = stage
    elif not last_role:
        what = "preparing"
    elif last_role == RunMessage.Role.ASSISTANT:
        what = "carrying out what the model asked for"
    else:
        what = _asking("asking the model", attempt)
    if _worker_is_lost(run):
        yield ShownStep(what=what, state="interrupted", tone="warning", text=f"{CUT_OFF}; another one goes on")
        return
    since = steps[-1].created_at if steps else run.started_at
    yield ShownStep(what=what, state="running", tone="info", since=since)


def _worker_is_lost(run: Run) -> bool:
    """Return whether the process that has the turn is known to be gone, or its lease has ended."""
    if owner_is_dead(run.lease_owner):
        return True
    return run.lease_expires_at is not None and run.lease_expires_at < timezone.now()
