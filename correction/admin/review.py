"""The review queue's alarms of the gate to mark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from django.db.models import QuerySet, Subquery
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.kit.console import display
from agents.kit.console.home import CountUpTo
from agents.kit.console.logs import READING
from agents.kit.console.panels import facts
from agents.kit.console.review import Decision, ReviewKind, Waits, add_review, by_key, newest
from agents.models import about_watched_agents
from correction.admin.display import against_threshold, source_badge, speaker
from correction.admin.sessions import MARK_PERMISSION, TYPED_TAGS
from correction.gate.thresholds import mark_result
from correction.models import CorrectionLog, GateDimensionResult, synthetic_logs

NEWEST_LOGS = 2_000  # looked through for alarms without a mark
Mark = GateDimensionResult.Mark


def alarms() -> QuerySet[GateDimensionResult]:
    """Return failed checks without a mark among the newest drafts of watched agents, without those in synthetic channels.

    A sentence that a person typed to try the gate is none: no agent wrote it.
    """
    newest_log = Subquery(CorrectionLog.objects.order_by("-pk").values("pk")[:1])
    rows = GateDimensionResult.objects.filter(log__gt=newest_log - NEWEST_LOGS, passed=False, mark="")
    rows = rows.filter(~synthetic_logs("log__"), about_watched_agents("log__session__agent"))
    rows = rows.exclude(log__session__tags=TYPED_TAGS)
    return rows.order_by("-log_id", "pk")


def waiting_alarms(request: HttpRequest, agent: str, keys: Collection[str] | None) -> Iterable[Waits]:
    """Return the alarms to mark, newest first."""
    return newest(alarms(), agent, keys, at="log__created_at", agent_slug="log__session__agent__slug")


def _alarm_line(result: GateDimensionResult) -> SafeString:
    return format_html("{} {}", against_threshold(result), source_badge(result.log.session))


def _show_alarm(request: HttpRequest, result: GateDimensionResult) -> SafeString:
    """Show the draft, with the verdict that a person is to mark, and a link to the message that was sent, if any.

    Users who may not read messages see neither draft nor verdict.
    """
    log = result.log
    message = log.session.message
    sent = display.EMPTY
    if message is not None:
        sent = display.link(transcript_url(message), "Read it in its conversation")
    about = facts(("Agent", speaker(log.session)), ("What was said", sent), ("Attempt", f"{log.attempt}"))
    if not request.user.has_perm(READING):
        return format_html("{}<p>Reading the draft needs the permission to view messages.</p>", about)
    verdict = render_to_string("admin/correction/log/results.html", {"results": [result]}, request)
    return format_html(
        "{}<h3>Draft</h3>{}<h3>Verdict</h3>{}", about, display.block(log.judged_text), SafeString(verdict)
    )


def _mark(mark: str, expected: str) -> Callable[..., object]:
    """Return a decision that marks an alarm, where its mark still is the expected one."""
    return lambda request, result, note="": mark_result(result=result, mark=mark, user=request.user, expected=expected)


def _session_url(result: GateDimensionResult) -> str:
    return f"{reverse('admin:correction_correctionlog_change', args=[result.log_id])}#result-{result.pk}"


add_review(
    ReviewKind(
        name="alarms",
        title="Alarms of the gate",
        one="alarm of the gate to mark",
        many="alarms of the gate to mark",
        order=30,
        permissions=(MARK_PERMISSION,),
        fills="drafts that failed a check of the gate. Marks say how often it is right, and which threshold to choose.",
        waiting=waiting_alarms,
        count=lambda request: CountUpTo(alarms()),
        find=partial(
            by_key,
            GateDimensionResult.objects.select_related(
                "log__session__agent", "log__session__channel", "log__session__message__channel", "marked_by"
            ),
        ),
        line=_alarm_line,
        show=_show_alarm,
        url=_session_url,
        decisions=(
            Decision(
                name="right",
                label="Right",
                key="r",
                done="is marked right",
                decide=_mark(Mark.RIGHT, ""),
                undo=_mark("", Mark.RIGHT),
            ),
            Decision(
                name="false_alarm",
                label="False alarm",
                key="f",
                done="is marked a false alarm",
                decide=_mark(Mark.FALSE_ALARM, ""),
                undo=_mark("", Mark.FALSE_ALARM),
            ),
        ),
    )
)
