"""The sentinels of judges, and where other pages say that a judge changed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.contrib import admin
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.charts import MOST_OF_A_KIND, Marker, MarkerSource, add_markers
from agents.kit.console.panels import table
from agents.kit.console.site import ReadOnlyAdmin, console_action
from agents.kit.llm.endpoints import model_of
from agents.kit.models import LLMCall
from agents.kit.text.wording import counted
from evaluation.admin.display import judged_by
from evaluation.change.judge_changes import change_holding
from evaluation.change.models import JudgeSentinel, SentinelCheck
from evaluation.change.sentinel import (
    HELD_BACK,
    ITEMS,
    LEAST_MESSAGES,
    accept,
    change_words,
    estimate_check,
    has_sentinel,
    items_of,
)
from evaluation.judge.identity import JudgeIdentity, identities_of, judge_changed
from evaluation.models import PROCEDURE, EvaluationRun, EvaluationSchedule, Method
from evaluation.propositions.files import PropositionError

CHECKS_SHOWN = 20
MOST_EVALUATIONS = 2_000  # the newest, in which changes of a judge are looked for


@admin.register(JudgeSentinel)
class JudgeSentinelAdmin(ReadOnlyAdmin[JudgeSentinel]):
    judge_mark = display.column("judge", judged_by, ordering="judge")
    frozen = display.column("frozen judgements", lambda sentinel: f"{len(sentinel.items):,} of {ITEMS}")
    reference = display.column("reference", lambda sentinel: display.moment(sentinel.reference_at))

    def get_queryset(self, request: HttpRequest) -> QuerySet[JudgeSentinel]:
        changes = SentinelCheck.objects.filter(sentinel=OuterRef("pk"), changed=True, ended_at=None)
        return super().get_queryset(request).annotate(has_changed=Exists(changes))

    @admin.display(description="state")
    def state(self, sentinel: JudgeSentinel) -> SafeString:
        if sentinel.has_changed:  # type: ignore[attr-defined]
            return display.badge("judge changed", "bad", HELD_BACK)
        if sentinel.reference_at is None:
            return display.badge("no reference yet")
        return display.badge("no change found", "good")

    def get_panels(self, request: HttpRequest, obj: JudgeSentinel) -> list[SafeString]:
        """Add what was found, the newest checks, what the next one costs, and where a change is open the button that accepts it."""
        checks = list(obj.checks.all()[:CHECKS_SHOWN])
        change = obj.checks.filter(changed=True, ended_at=None).first()
        context = {
            "sentinel": obj,
            "change": change,
            "found": change_words(change) if change is not None else "",
            "held_back": HELD_BACK,
            "named": _named(obj, change) if change is not None else "",
            "reference_by": JudgeIdentity.model_validate(obj.identity).name if obj.identity else "",
            "checks": _checks_table(checks),
            "messages": len({item.message for item in items_of(obj)}),
            "least": LEAST_MESSAGES,
            "cost": cost_words(obj.judge, obj.procedure),
            "may": request.user.has_perm("change.change_judgesentinel"),
            "accept": reverse("admin:change_judgesentinel_accept", args=[obj.pk]),
        }
        panel = render_to_string("admin/change/sentinel.html", context, request)
        return [*super().get_panels(request, obj), panel]

    @console_action("accept", "change.change_judgesentinel")
    def accept(self, request: HttpRequest, sentinel: JudgeSentinel) -> str:
        if not accept(sentinel, user=user_of(request)):
            raise ValueError("no change of the judge is open")
        return "The newest answers are the reference from now on."


def _named(sentinel: JudgeSentinel, check: SentinelCheck) -> str:
    """Return what changed in the judge's identity, as far as the server says so; empty where it says nothing."""
    if not sentinel.identity or not check.identity:
        return ""
    before = JudgeIdentity.model_validate(sentinel.identity)
    now = JudgeIdentity.model_validate(check.identity)
    return capfirst(judge_changed([before], [now]))


def _checks_table(checks: list[SentinelCheck]) -> SafeString:
    """Return the checks as a table: when, what was found, who answered, and what it cost; empty without any."""
    calls = LLMCall.objects.filter(work_id__in=[check.work_id for check in checks]).order_by()
    sums = calls.values("work_id").annotate(
        calls=Count("pk"), cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd=None))
    )
    spent_by_work = {row["work_id"]: row for row in sums}
    rows: list[tuple[object, ...]] = []
    for check in checks:
        change = change_words(check) if check.status in SentinelCheck.FINAL else ""
        badge = display.badge("judge changed", "bad") if check.changed else ""
        over: SafeString | str = ""
        if check.ended_at is not None:
            how = "answers as before since" if check.went_back else "accepted"
            over = format_html("{} {}", how, display.moment(check.ended_at))
        name = JudgeIdentity.model_validate(check.identity).name if check.identity else ""
        spent = spent_by_work.get(check.work_id)
        spent_text: object = display.EMPTY
        if spent is not None:
            cost = "unpriced" if spent["unpriced"] else display.dollars(spent["cost"])
            url = display.list_url(LLMCall, work_id=check.work_id)
            spent_text = display.link(url, f"{counted(spent['calls'], 'call')}, {cost}")
        outcome = format_html("{} {} {}", display.visible(change), badge, over)
        rows.append(
            (display.moment(check.fired_at), display.status_badge(check), outcome, display.visible(name), spent_text)
        )
    return table(("Asked", "Status", "Found", "Who answered", "Spent"), rows, label="Checks of the judge")


def cost_words(judge: str, procedure: str) -> str:
    """Return what the next check of a judge would cost, in a sentence; empty where it has none."""
    if not has_sentinel(judge):
        return ""
    try:
        estimate = estimate_check(judge, procedure)
    except PropositionError:
        return ""
    if estimate is None:
        return f"Too little was judged to freeze any judgement yet: it takes {LEAST_MESSAGES} messages."
    cost = "unpriced" if estimate.cost_usd is None else f"about {display.dollars(estimate.cost_usd)}"
    return f"Each check makes {counted(estimate.calls, 'call')}, {cost}."


# -- on other pages
def held_panel(request: HttpRequest, run: EvaluationRun) -> SafeString:
    """Return on an evaluation's page that its alerts are held back because the judge changed; empty where they are not."""
    if run.agent_id is None:
        return SafeString("")
    check = change_holding(run)
    if check is None:
        return SafeString("")
    return format_html('<div class="pl-panel">{}</div>', _notices([check]))


def sentinel_cost_panel(request: HttpRequest, schedule: EvaluationSchedule) -> SafeString:
    """Return on a schedule's page that its judge is checked each time, and what that costs; empty where it is not."""
    judge = schedule.judge or model_of("judge")
    words = cost_words(judge, Method.PLUMBLINE.value)
    if not words:
        return SafeString("")
    sentinel = JudgeSentinel.objects.filter(judge=judge, procedure=Method.PLUMBLINE.value).first()
    label = "frozen judgements of the judge"
    frozen = display.page_of(sentinel, label) if sentinel is not None else label
    return format_html(
        '<p class="pl-panel pl-nothing">Each time it also asks up to {} {} again, to see that it did not change. {}</p>',
        ITEMS,
        frozen,
        words,
    )


def judge_notices(judges: Collection[str]) -> SafeString:
    """Return a line for each change of these judges that nobody has accepted; empty without any. One query."""
    changes = SentinelCheck.objects.filter(sentinel__judge__in=set(judges), changed=True, ended_at=None)
    return _notices(list(changes.select_related("sentinel")))


def _notices(checks: list[SentinelCheck]) -> SafeString:
    lines = []
    for check in checks:
        sentinel = display.page_of(check.sentinel, f"The judge {check.sentinel.judge} changed")
        lines.append((sentinel, display.moment(check.fired_at), change_words(check), HELD_BACK))
    return format_html_join("", '<p class="pl-reason">{} {}: {}. {}.</p>', lines)


# -- lines on charts
def judge_markers(agents: Collection[int], since: datetime, until: datetime) -> list[Marker]:
    """Return a marker where a judge of these agents began to answer as another model, or otherwise, and where its sentinel found a change.

    The newest where there are many.
    """
    runs = EvaluationRun.objects.filter(
        agent__in=agents, status=EvaluationRun.Status.COMPLETED, swap_test="", created_at__range=(since, until)
    )
    columns = ("judge", "judge_endpoint", "served_models", "prompt_digest", "created_at", "window_start", *PROCEDURE)
    newest = list(runs.only(*columns).order_by("-created_at", "-pk")[:MOST_EVALUATIONS])
    markers: dict[str, Marker] = {}
    before: dict[tuple[str, str], EvaluationRun] = {}  # those of another procedure are asked with other prompts
    for run in reversed(newest):
        earlier = before.get((run.judge, run.procedure))
        before[run.judge, run.procedure] = run
        sentence = judge_changed(identities_of(earlier), identities_of(run)) if earlier is not None else ""
        if sentence:
            title = f"{run.judge}: {sentence}"
            url = reverse("admin:evaluation_evaluationrun_change", args=[run.pk])
            markers[title] = Marker(at=run.window_start or run.created_at, title=title, url=url, kind="judge")
    judges = {judge for judge, _ in before}
    changes = SentinelCheck.objects.filter(changed=True, fired_at__range=(since, until), sentinel__judge__in=judges)
    of_judge = []
    for check in changes.select_related("sentinel")[:MOST_OF_A_KIND]:
        title = f"The judge {check.sentinel.judge} changed: {change_words(check)}"
        of_judge.append(Marker(at=check.fired_at, title=title, url=display.page_url(check.sentinel), kind="judge"))
    return [*list(markers.values())[-MOST_OF_A_KIND:], *of_judge]


add_markers(MarkerSource(permission="evaluation.view_evaluationrun", find=judge_markers))
