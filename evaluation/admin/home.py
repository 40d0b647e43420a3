"""What measuring shows on the console's first page: who drifts, how the judge does, the newest evaluations, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from urllib.parse import quote

from django.db.models import Exists, OuterRef
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.charts import COLOURS, Line, Marker, MarkerSource, Point, add_markers, line_chart, markers_of
from agents.console.home import (
    FAILURE_DAYS,
    HomePart,
    a_few,
    add_home,
    card,
    listing,
    number_link,
    percent,
    since,
    step,
    waiting,
)
from agents.llm.endpoints import model_of
from agents.models import Agent, LLMCall
from agents.ops.health import call_health
from agents.ops.sums import LEDGER, end_for_page, says_end
from evaluation.admin.display import (
    agreement_badge,
    coverage_mark,
    evaluation_link,
    judge_badge,
    judged_by,
    meter,
    target,
    way_name,
)
from evaluation.admin.drift_overview import STATES, usual_overview
from evaluation.calibration.agreement import calibration_of
from evaluation.change.over_time import History, histories, measured_lately
from evaluation.change.overview import Card, State, candidate_words, numbers_of, short_name
from evaluation.models import (
    COUNTED,
    Baseline,
    Dimension,
    DriftAlert,
    EvaluationRun,
    EvaluationSchedule,
    LabelSet,
    Method,
)
from evaluation.propositions.files import PropositionError, load_all
from evaluation.runs.summary import shares_of, total
from evaluation.wording import counted

DAYS = (7, 30, 90, 180, 365)
USUAL_DAYS = 30
DIMENSIONS = [(value, label) for value, label in Dimension.choices if value not in COUNTED]
MOST_LINES = COLOURS
MOST_ALERTS = 30


NAMED = 4
COMPARED: tuple[State, ...] = ("drifted", "possibly drifted", "steady", "improved")  # of those it is known how they are
RUNS = 6
LOOKED_AT = 300  # agents, for one without a baseline
WENT_WRONG = (EvaluationRun.Status.FAILED, EvaluationRun.Status.ERRORED, EvaluationRun.Status.PAUSED_BUDGET)


def drifting_card(request: HttpRequest) -> SafeString | None:
    """How many agents the overview of drift counts as fallen, and who; not known, rather than none, where nothing was compared."""
    if not request.user.has_perm("agents.view_agent"):
        return None
    overview_now = usual_overview(state="drifted", stop=NAMED)
    overview = reverse("admin:evaluation_drift_overview")
    compared = sum(overview_now.states.get(state, 0) for state in COMPARED)
    lines: list[SafeString | None] = [_fallen(one) for one in overview_now.cards]
    if overview_now.total > NAMED:
        lines.append(format_html("and {} more", overview_now.total - NAMED))
    others = [
        display.link(f"{overview}?state={quote(state)}", f"{overview_now.states[state]:,} {state}")
        for state in STATES
        if state != "drifted" and overview_now.states.get(state)
    ]
    lines.append(format_html_join(", ", "{}", ((other,) for other in others)))
    if not EvaluationSchedule.objects.filter(is_active=True).exists():
        schedules = display.link(display.list_url(EvaluationSchedule), "Schedules")
        lines.append(format_html("Nothing is measured again: no schedule is active. {}", schedules))
    if request.user.has_perm("evaluation.view_driftalert"):
        alerts = a_few(DriftAlert.objects.filter(alert__acknowledged_at__isnull=True))
        url = display.list_url(DriftAlert, alert__acknowledged_at__isempty=1)
        lines.append(waiting(alerts, "alert of a schedule", "alerts of schedules", url))
    if compared:
        lines.append(display.link(overview, "Who drifted, and in what"))
    held = compared == sum(overview_now.states.values()) and not overview_now.states.get("possibly drifted")
    return card(
        "Drifting now",
        figure=number_link(f"{overview}?state=drifted", f"{overview_now.total:,}") if compared else "–",
        unit=f"of {counted(compared, 'agent')} compared" if compared else "",
        lines=lines,
        tone="bad" if overview_now.total else "good" if compared and held else "plain",
        wide=True,
    )


def _fallen(one: Card) -> SafeString:
    """An agent with the proposition that fell most, its scores, and of what messages they are."""
    url = f"{reverse('admin:agents_agent_change', args=[one.agent.pk])}#change"
    name = short_name(one.main.proposition, one.agent.slug, one.main.dimension) if one.main else ""
    return format_html(
        '<span class="pl-fallen">{}<a class="pl-link pl-number" href="{}">{} {}</a> <span class="pl-subtle">{}</span></span>',
        *(display.agent_chip(one.agent), url, display.visible(name), numbers_of(one.main) if one.main else ""),
        display.visible(candidate_words(one)),
    )


def judge_card(request: HttpRequest) -> SafeString:
    """How the judge's calls went in the last 24 hours, the newest failure, and how well it agrees with people."""
    day = since(24)
    end, judge = end_for_page(LEDGER), model_of("judge")
    health = call_health(role="judge", since=day, end=end)
    lately = {"role": "judge", "created_at__gte": day.isoformat()}
    lines: list[object] = [judge_badge(judge), says_end(end)]
    if health.calls:
        failed = sum(health.failed.values())
        in_statuses = display.list_url(LLMCall, **lately, status__in=",".join(sorted(health.failed)))
        wrong = display.link(in_statuses, f"{failed:,} failed") if failed else "none failed"
        ok = display.link(display.list_url(LLMCall, **lately, status__exact="ok"), f"{health.ok:,} answered")
        mean = f", {health.mean_ms:,.0f} ms on average" if health.mean_ms is not None else ""
        lines.append(format_html("{}, {}{} in 24 h", ok, wrong, mean))
    elif end is None:
        lines.append("No calls in the last 24 hours.")
    if (last := health.last_failure) is not None:
        status, shown = display.page_of(last, last.get_status_display()), display.shortened(last.error, 60)
        lines.append(
            format_html("Last failure: {} {} {}", status, display.moment(last.created_at), display.visible(shown))
        )
    if request.user.has_perm("evaluation.view_labelset"):
        adherence = Dimension.ADHERENCE.value
        agreement = calibration_of(judge, Method.PLUMBLINE.value).get(adherence)
        people = display.link(display.list_url(LabelSet), "Agreement with people:")
        lines.append(format_html("{} {}", people, agreement_badge(agreement, adherence)))
    share = health.ok / health.calls if health.calls else None
    return card(
        "Judge",
        figure=percent(share) if share is None else number_link(display.list_url(LLMCall, **lately), percent(share)),
        unit="of calls answered" if health.calls else "",
        lines=lines,
        tone="plain" if share is None else "good" if share >= 0.99 else "warning" if share >= 0.9 else "bad",
    )


def runs_list(request: HttpRequest) -> SafeString:
    """The newest evaluations, and the newest that failed or paused."""
    url = display.list_url(EvaluationRun)
    rows = EvaluationRun.objects.select_related("agent", "channel").defer(
        "figures", "proposition_digests", "additional_context", "swaps"
    )
    wrong = rows.filter(status__in=WENT_WRONG, created_at__gte=since(24 * FAILURE_DAYS)).order_by("-created_at")[:RUNS]
    return listing(
        "Evaluations",
        heads=("Evaluation", "Of whom", "Status, overall score"),
        rows=_shown(rows.filter(agent_shares=None).order_by("-pk")[:RUNS]),
        wrong=_shown(wrong),
        more=((url, "All evaluations"), (f"{url}?status__in={','.join(WENT_WRONG)}", "All that failed or paused")),
        empty="Nothing was measured yet. This measures every agent:",
        command="manage.py capture_baseline --agents all",
    )


def _shown(runs: Iterable[EvaluationRun]) -> list[tuple[object, ...]]:
    runs = list(runs)
    shares = shares_of([run.pk for run in runs])
    rows: list[tuple[object, ...]] = []
    for run in runs:
        state, score = display.status_badge(run), meter(run.overall_score, share=total(shares[run.pk].values()))
        said = display.lines(format_html("{} {}", state, score), judge_badge(run.judge))
        if run.error:
            said = format_html("{} {}", state, display.folded(run.error, 90))
        rows.append((display.lines(evaluation_link(run.pk), display.moment(run.created_at)), target(run), said))
    return rows


def no_baseline(request: HttpRequest) -> SafeString | None:
    """Active agents that nothing can be compared with, among the newest."""
    has = Baseline.objects.filter(agent=OuterRef("pk"))
    newest = Agent.objects.in_use().order_by("-pk").values("pk")[:LOOKED_AT]
    without = list(
        Agent.objects.filter(~Exists(has), pk__in=newest).order_by("display_name").only("display_name")[: NAMED + 1]
    )
    if not without:
        return None
    names = format_html_join(", ", "{}", ((display.isolated(agent.display_name),) for agent in without[:NAMED]))
    who = format_html("{} and others", names) if len(without) > NAMED else names
    text = format_html(
        "Without one there is nothing to compare with. Missing: {}. In the list: choose agents, then “Capture baseline”.",
        who,
    )
    return step(
        "Agents have no baseline",
        text,
        command="manage.py capture_baseline --agents all",
        url=display.list_url(Agent, is_active__exact=1),
        label="Choose agents",
    )


def no_schedule(request: HttpRequest) -> SafeString | None:
    """There are baselines, but no schedule measures again."""
    if EvaluationSchedule.objects.exists() or not Baseline.objects.exists():
        return None
    may = request.user.has_perm("evaluation.add_evaluationschedule")
    return step(
        "Nothing is measured again",
        "A schedule measures every night and raises an alert when a score falls and stays low.",
        command="manage.py schedule add nightly --every 1d --at 03:00",
        url=reverse("admin:evaluation_evaluationschedule_add") if may else "",
        label="Add a schedule",
    )


def files_unusable(request: HttpRequest) -> SafeString | None:
    """Proposition files with mistakes: nothing can be measured until they are corrected."""
    try:
        load_all()
    except PropositionError as error:
        text = display.visible("; ".join(str(problem) for problem in error.problems[:NAMED]))
        return step("Proposition files cannot be used", text, command="manage.py check_propositions")
    return None


# -- drift over time: a line per agent with its baseline, and what was changed on the way
def drift_chart(request: HttpRequest) -> SafeString:
    """The chart with its form, or how to get a first measurement. What the form does not offer is as if it were not given."""
    asked, offered_days = request.GET, {str(days): days for days in DAYS}
    dimension = asked.get("dimension", "")
    dimension = dimension if dimension in dict(DIMENSIONS) else Dimension.ADHERENCE.value
    days = offered_days.get(asked.get("days", ""), USUAL_DAYS)
    start, end = since(24 * days), timezone.now()
    lately = measured_lately(since=start)
    way = next((way for way in lately if str(way) == asked.get("judge")), next(iter(lately), None))
    offered = [] if way is None else histories(agents=lately[way], judged=way, dimension=dimension, since=start)
    chosen = [history for history in offered if history.agent.slug in asked.getlist("agent")]
    shown, label = (chosen or offered)[:MOST_LINES], Dimension(dimension).label
    period = f"in the last {counted(days, 'day')}"
    chart = line_chart(
        _lines(shown, dimension),
        label=f"{label} {period}, 0 to 9",
        unit="of 9",
        markers=markers_of(request, [history.agent.pk for history in shown], start, end),
        since=start,
        until=end,
    )
    context = {
        "dimensions": [(value, name, value == dimension) for value, name in DIMENSIONS],
        "days": [(one, counted(one, "day"), one == days) for one in DAYS],
        "ways": [(str(one), way_name(one), one == way) for one in lately],
        "agents": [
            (history.agent.slug, display.isolated(history.agent.display_name), history in chosen)
            for history in sorted(offered, key=lambda history: history.agent.display_name.casefold())
        ],
        "most": MOST_LINES,
        "judge": judged_by(way) if way else "",
        "sentence": _sentence(shown, len(offered), chosen=bool(chosen)),
        "chart": chart if shown else "",
        "empty": f"{label} was not measured {period} by this judge." if way else f"Nothing was measured {period}.",
        "runs_url": display.list_url(EvaluationRun),
        "schedules_url": display.list_url(EvaluationSchedule),
    }
    return render_to_string("admin/home/drift.html", context)


def _lines(shown: Sequence[History], dimension: str) -> list[Line]:
    """Each agent's line; in the legend its newest score with the share scored."""
    shares = shares_of({history.newest.run for history in shown if history.newest is not None})
    lines = []
    for history in shown:
        note = display.badge("not scored", "warning")
        if history.newest is not None:
            share = coverage_mark(shares.get(history.newest.run, {}).get(dimension))
            note = format_html('<span class="pl-number">{}</span>{}', f"{history.newest.score:.1f}", share)
        points = [
            Point(
                at=reading.at,
                value=reading.score,
                error=reading.error,
                url=reverse("admin:evaluation_evaluationrun_change", args=[reading.run]),
            )
            for reading in history.readings
        ]
        url = reverse("admin:agents_agent_change", args=[history.agent.pk])
        lines.append(Line(name=history.agent.display_name, points=points, note=note, url=url, level=history.baseline))
    return lines


def _sentence(shown: Sequence[History], offered: int, *, chosen: bool) -> str:
    """Which agents are shown, of how many."""
    if not shown:
        return ""
    missing = sum(history.left_out for history in shown)
    older = f" {counted(missing, 'older evaluation')} of no schedule not drawn." if missing else ""
    if chosen or offered <= MOST_LINES:
        return f"{counted(len(shown), 'agent')}. Dotted: their baselines.{older}"
    return f"The {len(shown)} of {offered} agents that lie furthest below their baselines (dotted).{older}"


def alert_markers(agents: Collection[int], start: datetime, end: datetime) -> list[Marker]:
    """Each alert that was raised for one of these agents."""
    rows = DriftAlert.objects.filter(agent__in=agents, created_at__range=(start, end)).select_related("agent")
    return [
        Marker(
            at=alert.created_at,
            title=f"{alert.agent.display_name}: {alert.dimension.replace('_', ' ')} fell from {alert.before:.1f} to {alert.after:.1f}",
            url=reverse("admin:evaluation_driftalert_change", args=[alert.pk]),
            kind="alert",
        )
        for alert in rows.order_by("-pk")[:MOST_ALERTS]
    ]


add_home(
    HomePart(place="setup", order=45, permission="evaluation.view_proposition", render=files_unusable),
    HomePart(place="setup", order=50, permission="evaluation.view_baseline", render=no_baseline),
    HomePart(place="setup", order=60, permission="evaluation.view_evaluationschedule", render=no_schedule),
    HomePart(place="cards", order=20, permission="evaluation.view_baseline", render=drifting_card),
    HomePart(place="cards", order=60, permission="agents.view_llmcall", render=judge_card),
    HomePart(place="charts", order=10, permission="evaluation.view_evaluationrun", render=drift_chart),
    HomePart(place="lists", order=20, permission="evaluation.view_evaluationrun", render=runs_list),
)
add_markers(MarkerSource(permission="evaluation.view_driftalert", find=alert_markers))
