"""What the gate did to a message, shown beside it in its conversation and on its page."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.text_diff import word_diff
from agents.models import Message, Run
from correction.admin.display import Ending, attempt_badge, ending_of, endings, outcome_badge, results
from correction.admin.intervention_log import fired_badge
from correction.admin.timeline import MARKING, results_context
from correction.models import CorrectionLog, InterventionLog

MARK_FORM = "marks"  # the id of the form on a page of messages that the buttons belong to
MOST_INTERVENTIONS = 50  # of a turn
MOST_COMPARED = 2_500  # characters of a draft and what was said
MOST_DIFFS = 20  # of a page: each takes time that grows with the square of the texts


class Comparing:
    """What compares drafts with what was said, for one page: at most `MOST_DIFFS` times."""

    def __init__(self) -> None:
        self.left = MOST_DIFFS

    def of(self, draft: str, said: str) -> tuple[SafeString | None, str]:
        """The difference, or why there is none to see here."""
        if len(draft) + len(said) > MOST_COMPARED:
            return None, "Too long to compare here"
        if not self.left:
            return None, "Not compared here, as there is much on this page"
        self.left -= 1
        found = word_diff(draft, said)
        return found, "" if found is not None else "Too long to compare here"


Sessions = dict[int, dict[object, list[CorrectionLog]]]


def gate_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """For the transcript: per message that the gate looked at, how it went; opened, its drafts and verdicts.

    Few queries for a page, however many messages it has.
    """
    found = _sessions(messages)
    at = request.GET.get("at") if request.GET.get("opened") == "gate" else None
    notes, comparing = {}, Comparing()
    for message in messages:
        if message.pk in found:
            back = reverse("admin:agents_channel_transcript", args=[message.channel_id])
            back = f"{back}?{urlencode({'at': message.position, 'opened': 'gate'})}"
            opened = at == str(message.position)
            notes[message.pk] = _note(
                request, message, found[message.pk], comparing, back=back, form=MARK_FORM, opened=opened
            )
    return notes


def gate_panel(request: HttpRequest, message: Message) -> SafeString:
    """For the page of one message, whose own form the buttons belong to."""
    found = _sessions([message]).get(message.pk)
    if not found:
        return SafeString("")
    back = reverse("admin:agents_message_change", args=[message.pk])
    note = _note(request, message, found, Comparing(), back=back, form="", opened=True)
    return format_html('<section class="pl-panel"><h2>Gate</h2>{}</section>', note)


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """For the page of a turn: the drafts that the gate looked at in it, in their order, and the interventions before it."""
    return format_html("{}{}", _gate_of_run(run), _interventions_of_run(request, run))


def _interventions_of_run(request: HttpRequest, run: Run) -> SafeString:
    if not request.user.has_perm("correction.view_interventionlog"):
        return SafeString("")
    logs = InterventionLog.objects.filter(run=run).defer("preconditions").order_by("pk")[:MOST_INTERVENTIONS]
    lines = format_html_join(
        "",
        "<li>{} {} {}</li>",
        (
            (
                display.page_of(log, log.name.replace("_", " ")),
                fired_badge(log.fired),
                display.folded(log.nudge or log.why, 120),
            )
            for log in logs
        ),
    )
    return _list_panel("Interventions", lines)


def _gate_of_run(run: Run) -> SafeString:
    logs = list(CorrectionLog.objects.filter(run=run).prefetch_related("dimension_results").order_by("pk"))
    ended = endings(logs)
    lines = format_html_join(
        "",
        "<li>{} {} {}</li>",
        (
            (
                display.page_of(log, f"attempt {log.attempt}"),
                attempt_badge(log, ended[log.session]),
                results(log.dimension_results.all()),
            )
            for log in logs
        ),
    )
    return _list_panel("Gate", lines)


def _list_panel(title: str, lines: SafeString) -> SafeString:
    if not lines:
        return lines
    return format_html('<section class="pl-panel"><h2>{}</h2><ul class="pl-lined">{}</ul></section>', title, lines)


def _sessions(messages: list[Message]) -> Sessions:
    """The attempts at each message, by session, in their order."""
    logs = (
        CorrectionLog.objects.filter(message__in=messages)
        .defer("payload", "tags")
        .prefetch_related("dimension_results__marked_by")
        .order_by("message_id", "session", "attempt")
    )
    found: Sessions = defaultdict(lambda: defaultdict(list))
    for log in logs:
        if log.message_id is not None:
            found[log.message_id][log.session].append(log)
    return found


def _note(
    request: HttpRequest,
    message: Message,
    sessions: dict[object, list[CorrectionLog]],
    comparing: Comparing,
    *,
    back: str,
    form: str,
    opened: bool,
) -> SafeString:
    context = {
        "position": message.position,
        "opened": opened,
        "sessions": [_session(message, attempts, comparing) for attempts in sessions.values()],
        "may_mark": request.user.has_perm(MARKING),
        "mark_form": form,
        "mark_query": f"?{urlencode({'next': back})}",
    }
    return render_to_string("admin/correction/log/note.html", context)


def _session(message: Message, attempts: list[CorrectionLog], comparing: Comparing) -> dict[str, Any]:
    said = next((log for log in attempts if log.committed), attempts[-1])
    ending = ending_of(attempts)
    failed = [result for result in said.dimension_results.all() if not result.passed]
    return {
        "label": outcome_badge(ending.outcome),
        "failed": results(failed) if failed else "",
        "attempts": [_attempt(message, log, ending, comparing) for log in attempts],
        "page": display.page_of(said, "The whole session"),
    }


def _attempt(message: Message, log: CorrectionLog, ending: Ending, comparing: Comparing) -> dict[str, Any]:
    is_other = log.judged_text != message.text
    diff, uncompared = comparing.of(log.judged_text, message.text) if is_other else (None, "")
    return {
        "number": log.attempt,
        "outcome": attempt_badge(log, ending),
        "committed": log.committed,
        "duration": f"{log.duration_ms:,} ms",
        "text": display.block(log.judged_text) if is_other else "",
        "diff": diff,
        "uncompared": uncompared,
        "in_session": display.page_of(log, "in the session") if uncompared else "",
        "results": results_context(log),
        "feedback": display.folded(log.feedback, 120) if log.feedback else "",
    }
