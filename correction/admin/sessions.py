"""A session of the gate as a timeline: each attempt at one message with its verdicts, the feedback, and what was said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.display import word_diff
from agents.console.panels import Span, waterfall
from agents.models import LLMCall, Message, Run
from correction.admin.display import (
    Ending,
    attempt_badge,
    ending_of,
    endings,
    failed_first,
    outcome_badge,
    results,
)
from correction.models import CorrectionLog, GateDimensionResult, InterventionLog, Outcome

_LATE = (GateDimensionResult.Status.TIMEOUT, GateDimensionResult.Status.ERROR, GateDimensionResult.Status.OVERLOAD)


def session_waterfall(attempts: Sequence[CorrectionLog]) -> SafeString:
    """The attempts at one message on one scale of time. Reads their results as they were fetched.

    An attempt is logged when it was judged; its dimensions are judged at the same time, from its beginning.
    """
    begun = min(log.created_at - timedelta(milliseconds=log.duration_ms) for log in attempts)
    ending, spans = ending_of(attempts), []
    for log in attempts:
        start, badge = (log.created_at - begun).total_seconds() - log.duration_ms / 1000, attempt_badge(log, ending)
        spans.append(
            Span(
                label=format_html('<a class="pl-link" href="#attempt-{}">Attempt {}</a>', log.attempt, log.attempt),
                kind="attempt",
                start=start,
                seconds=log.duration_ms / 1000,
                problem=badge if log.outcome in (Outcome.CORRECTED, Outcome.FORCED_THROUGH) else "",
                status=badge,
            )
        )
        for result in log.dimension_results.all():
            spans.append(
                Span(
                    label=display.visible(result.dimension.replace("_", " ")),
                    kind="judge",
                    start=start,
                    seconds=result.duration_ms / 1000,
                    is_part=True,
                    problem=display.badge(result.get_status_display(), "warning") if result.status in _LATE else "",
                )
            )
    total = (max(log.created_at for log in attempts) - begun).total_seconds()
    remark = "Between the attempts the agent wrote its next draft." if len(attempts) > 1 else ""
    return waterfall(spans, title="How long it took", total=total, remark=remark)


MARKING = "correction.change_gatedimensionresult"


Compare = Callable[[str, str], tuple[SafeString | None, str]]


def session_context(log: CorrectionLog, *, may_mark: bool) -> dict[str, Any]:
    """What the template shows of the session that `log` is an attempt of."""
    attempts = list(
        CorrectionLog.objects.filter(session=log.session)
        .select_related("agent", "channel", "run__agent", "message__channel", "persona_version")
        .prefetch_related("dimension_results__marked_by")
        .order_by("attempt")
    )
    said = next((attempt.judged_text for attempt in attempts if attempt.committed), None)
    ending = ending_of(attempts)
    return {
        "first": attempts[0],
        "opened": log.attempt,
        "outcome": outcome_badge(ending.outcome),
        "calls": display.link(display.list_url(LLMCall, work_id=log.work_id), "the calls it made"),
        "duration": sum(attempt.duration_ms for attempt in attempts),
        "waterfall": session_waterfall(attempts),
        "attempts": [_attempt(one, said, ending, lambda draft, said: (word_diff(draft, said), "")) for one in attempts],
        "may_mark": may_mark,
    }


def _attempt(log: CorrectionLog, said: str | None, ending: Ending, compare: Compare) -> dict[str, Any]:
    """One attempt for a template, with the difference from what was said in the end where that is another text."""
    is_other = said is not None and said != log.judged_text
    diff, uncompared = compare(log.judged_text, said or "") if is_other else (None, "")
    return {
        "log": log,
        "outcome": attempt_badge(log, ending),
        "is_other": is_other,
        "diff": diff,
        "uncompared": uncompared,
        "results": failed_first(log.dimension_results.all()),
    }


MARK_FORM = "marks"  # the id of the form on a page of messages that the buttons belong to
MOST_INTERVENTIONS = 50  # of a turn
MOST_COMPARED = 2_500  # characters of a draft and what was said
MOST_DIFFS = 20  # of a page: each takes time that grows with the square of the texts


def _bounded() -> Compare:
    """A comparison of drafts with what was said, for one page: at most `MOST_DIFFS` times."""
    left = iter(range(MOST_DIFFS))

    def compare(draft: str, said: str) -> tuple[SafeString | None, str]:
        """The difference, or why there is none to see here."""
        if len(draft) + len(said) > MOST_COMPARED:
            return None, "Too long to compare here"
        if next(left, None) is None:
            return None, "Not compared here, as there is much on this page"
        diff = word_diff(draft, said)
        return diff, "" if diff is not None else "Too long to compare here"

    return compare


Sessions = dict[int, dict[object, list[CorrectionLog]]]


def gate_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """For the transcript: per message that the gate looked at, how it went; opened, its drafts and verdicts.

    Few queries for a page, however many messages it has.
    """
    sessions = _sessions(messages)
    at = request.GET.get("at") if request.GET.get("opened") == "gate" else None
    notes, compare = {}, _bounded()
    for message in messages:
        if message.pk in sessions:
            back = reverse("admin:agents_channel_transcript", args=[message.channel_id])
            back = f"{back}?{urlencode({'at': message.position, 'opened': 'gate'})}"
            opened = at == str(message.position)
            notes[message.pk] = _note(
                request, message, sessions[message.pk], compare, back=back, form=MARK_FORM, opened=opened
            )
    return notes


def gate_panel(request: HttpRequest, message: Message) -> SafeString:
    """For the page of one message, whose own form the buttons belong to."""
    sessions = _sessions([message]).get(message.pk)
    if not sessions:
        return SafeString("")
    back = reverse("admin:agents_message_change", args=[message.pk])
    note = _note(request, message, sessions, _bounded(), back=back, form="", opened=True)
    return format_html('<section class="pl-panel"><h2>Gate</h2>{}</section>', note)


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """For the page of a turn: the drafts that the gate looked at in it, in their order, and the interventions before it."""
    logs = list(CorrectionLog.objects.filter(run=run).prefetch_related("dimension_results").order_by("pk"))
    ended, nudges = endings(logs), InterventionLog.objects.none()
    if request.user.has_perm("correction.view_interventionlog"):
        nudges = InterventionLog.objects.filter(run=run).defer("preconditions").order_by("pk")[:MOST_INTERVENTIONS]
    drafts = [(log, attempt_badge(log, ended[log.session]), results(log.dimension_results.all())) for log in logs]
    return render_to_string("admin/correction/log/run.html", {"drafts": drafts, "nudges": nudges})


def _sessions(messages: list[Message]) -> Sessions:
    """The attempts at each message, by session, in their order."""
    logs = (
        CorrectionLog.objects.filter(message__in=messages)
        .defer("payload", "tags")
        .prefetch_related("dimension_results__marked_by")
        .order_by("message_id", "session", "attempt")
    )
    sessions: Sessions = defaultdict(lambda: defaultdict(list))
    for log in logs:
        if log.message_id is not None:
            sessions[log.message_id][log.session].append(log)
    return sessions


def _note(
    request: HttpRequest,
    message: Message,
    sessions: dict[object, list[CorrectionLog]],
    compare: Compare,
    *,
    back: str,
    form: str,
    opened: bool,
) -> SafeString:
    shown = []
    for attempts in sessions.values():
        said = next((log for log in attempts if log.committed), attempts[-1])
        ending = ending_of(attempts)
        failed = [result for result in said.dimension_results.all() if not result.passed]
        shown.append(
            {
                "said": said,
                "label": outcome_badge(ending.outcome),
                "failed": results(failed) if failed else "",
                "attempts": [_attempt(log, message.text, ending, compare) for log in attempts],
            }
        )
    context = {
        "position": message.position,
        "opened": opened,
        "sessions": shown,
        "may_mark": request.user.has_perm(MARKING),
        "mark_form": form,
        "mark_query": f"?{urlencode({'next': back})}",
    }
    return render_to_string("admin/correction/log/note.html", context)
