"""Current baselines: their own list, what they add to the agents' pages, and what a measurement says compared with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any

from django.contrib import admin, messages
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.filters import AgentFilter, RecentValuesFilter
from agents.console.forms import confirmed
from agents.models import Agent
from evaluation.admin.display import (
    agreement_of_baseline,
    dimension_badge,
    judge_badge,
    mark_agreements,
    number,
    procedure_badge,
    simulated_by,
)
from evaluation.admin.drift import TONES
from evaluation.admin.drift_overview import OverviewAdmin
from evaluation.change.change import Change
from evaluation.change.comparison import Comparison, compare_runs, compare_to_baseline
from evaluation.change.evidence import Judged, is_stale, newest_since_baselines, runs_of, stale_reasons
from evaluation.change.measurements import NotComparable
from evaluation.models import Baseline, EvaluationRun, EvaluationScore
from evaluation.propositions.files import PropositionError
from evaluation.runs.control import queue_baseline
from evaluation.runs.summary import Share, shares_of
from evaluation.simulation.conversations import ENOUGH, awaits_simulation
from evaluation.wording import counted, interval_text, signed

MOST_JUDGEMENTS = 20_000  # more take seconds; the command has no limit
MOST_COMPARED = 3  # judges on an agent's page; each takes a handful of queries


def stale_badge(reason: str = "") -> SafeString:
    badge = display.badge("stale", "warning", reason or "the persona changed since it was captured")
    return format_html('{} <span class="pl-subtle">{}</span>', badge, display.visible(reason)) if reason else badge


@admin.register(Baseline)
class BaselineAdmin(OverviewAdmin):
    list_display = ("what", "who", "dimension_mark", "value", "judge_mark", "agreement_mark", "stale", "captured")
    list_display_links = ("what",)
    list_filter = ("dimension", ("judge", RecentValuesFilter), ("agent", AgentFilter), "captured_at")
    list_select_related = ("agent",)
    ordering = ("agent_id", "judge", "procedure", "dimension")  # an index has it
    fields = (
        *("who", "dimension_mark", "value", "judge_mark", "agreement_mark", "simulated"),
        *("stale", "evaluation_run", "captured", "persona_digest"),
    )

    captured = display.time_of("captured_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Baseline]:
        return super().get_queryset(request).prefetch_related("agent__traits")

    what = display.column("baseline", lambda baseline: f"baseline {baseline.pk}", ordering="pk")
    who = display.column("agent", lambda baseline: display.agent_chip(baseline.agent), ordering="agent")

    @admin.display(description="dimension", ordering="dimension")
    def dimension_mark(self, baseline: Baseline) -> SafeString:
        return dimension_badge(baseline.dimension)

    @admin.display(description="score", ordering="score")
    def value(self, baseline: Any) -> SafeString:
        return number(baseline.score, baseline.count, share=_share(baseline, getattr(baseline, "shares", None)))

    @admin.display(description="judge", ordering="judge")
    def judge_mark(self, baseline: Baseline) -> SafeString:
        return format_html("{} {}", judge_badge(baseline.judge), procedure_badge(baseline.procedure))

    simulated = display.column("simulated by", lambda baseline: simulated_by(baseline.evaluation_run) or display.EMPTY)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes: Any = super().get_changelist_instance(request)
        changes.result_list = list(changes.result_list)
        mark_agreements(changes.result_list)
        reasons = stale_reasons(changes.result_list)
        shares = shares_of({baseline.evaluation_run_id for baseline in changes.result_list})
        for baseline in changes.result_list:
            baseline.stale_reasons, baseline.shares = reasons, shares
        return changes

    agreement_mark = display.column("agreement with people", agreement_of_baseline)

    @admin.display(description="persona")
    def stale(self, baseline: Baseline) -> SafeString:
        if not is_stale(baseline):
            return display.badge("current", "good")
        reasons = getattr(baseline, "stale_reasons", None)
        return stale_badge((stale_reasons([baseline]) if reasons is None else reasons).get(baseline.pk, ""))


def _share(baseline: Baseline, shares: Mapping[int, Mapping[str, Share]] | None = None) -> Share | None:
    """How much of it was scored; `shares` are those of a page of baselines, by evaluation and dimension."""
    run = baseline.evaluation_run_id
    return (shares_of([run]) if shares is None else shares).get(run, {}).get(baseline.dimension)


def _by_judge(baselines: Iterable[Baseline]) -> list[tuple[SafeString, list[Baseline]]]:
    """Baselines per judge and procedure: what was judged differently never stands in one line."""
    rows = sorted(baselines, key=lambda baseline: (baseline.judge, baseline.procedure, baseline.dimension))
    grouped = groupby(rows, key=lambda baseline: (baseline.judge, baseline.procedure))
    return [(_judged_by(*key), list(group)) for key, group in grouped]


def _judged_by(judge: str, procedure: str) -> SafeString:
    return format_html("{} {}", judge_badge(judge), procedure_badge(procedure))


# What the column reads: as many as three judges leave in five dimensions.
NEWEST_BASELINES: Prefetch[Any] = Prefetch(
    "baselines", queryset=Baseline.objects.order_by("-captured_at", "-pk")[:15], to_attr="newest_baselines"
)


@admin.display(description="baseline")
def baseline_column(agent: Any) -> SafeString:
    """A line per judge: its badge, the score of each dimension, and whether the persona changed since."""
    lines = []
    for judge, group in _by_judge(agent.newest_baselines):
        scores = format_html_join(
            " ",
            '<span class="pl-pair">{} {}</span>',
            ((dimension_badge(row.dimension), number(row.score, row.count)) for row in group),
        )
        stale = stale_badge() if any(is_stale(row) for row in group) else ""
        lines.append((judge, scores, stale))
    return format_html_join("", '<div class="pl-line">{} {} {}</div>', lines) or display.EMPTY


def baseline_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The agent's baselines, and the ways to its evaluations."""
    baselines = list(agent.baselines.select_related("evaluation_run"))
    mark_agreements(baselines)
    reasons = stale_reasons(baselines)
    shares = shares_of({row.evaluation_run_id for row in baselines})
    grouped = _by_judge(baselines)
    rows = [
        {
            "dimension": dimension_badge(row.dimension),
            "score": number(row.score, row.count, share=_share(row, shares)),
            "judge": judge,
            "agreement": agreement_of_baseline(row),
            "stale": stale_badge(reasons[row.pk]) if row.pk in reasons else "",
            "captured": display.moment(row.captured_at),
            "run": display.page_of(row.evaluation_run, f"evaluation {row.evaluation_run_id}"),
        }
        for judge, group in grouped
        for row in group
    ]
    newest = (
        (judge, newest_comparison(agent, judge=group[0].judge, procedure=group[0].procedure))
        for judge, group in grouped[:MOST_COMPARED]
    )
    context = {
        "rows": rows,
        "slug": agent.slug,
        "compared": [{**comparison, "judge": judge} for judge, comparison in newest if comparison is not None],
        "runs_url": display.list_url(EvaluationRun, agent__id__exact=agent.pk),
        "scores_url": display.list_url(EvaluationScore, evaluation_run__agent__id__exact=agent.pk),
    }
    return SafeString(render_to_string("admin/evaluation/agent_baselines.html", context, request))


ASKED = (
    "A worker measures each of them as it is now, which becomes what later evaluations are compared with; the baseline there is goes "
    "only when the new one has succeeded. It asks the configured judge: what that costs is estimated on each agent's page, and by "
    "manage.py capture_baseline --dry-run."
)


@admin.action(description="Capture baseline")
@confirmed(
    "Capture baseline", f"{ASKED} For agents with fewer than {ENOUGH} messages, conversations are simulated first."
)
def capture_baseline(model_admin: Any, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
    """Queue a baseline for each chosen agent; a worker runs them, and simulates conversations with agents that have little speech first."""
    _queue(model_admin, request, queryset, simulate=True)


@admin.action(description="Capture baseline of real speech only (no simulation)")
@confirmed("Capture baseline of real speech", f"{ASKED} Nothing is simulated.")
def capture_real_baseline(model_admin: Any, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
    """The same, of what was really said, however little."""
    _queue(model_admin, request, queryset, simulate=False)


def _queue(model_admin: Any, request: HttpRequest, queryset: QuerySet[Agent], *, simulate: bool) -> None:
    """Says how many were queued, and for whom it could not be done, and why."""
    runs: list[EvaluationRun] = []
    for agent in queryset:
        try:
            runs += queue_baseline(agents=[agent], simulate=simulate)
        except PropositionError as error:
            model_admin.message_user(request, f"{agent}: {error}", messages.ERROR)
    if runs:
        simulated = [str(run.agent) for run in runs if awaits_simulation(run)]
        first = f" Simulated first (fewer than {ENOUGH} messages): {', '.join(simulated)}." if simulated else ""
        where = display.link(display.list_url(EvaluationRun, is_baseline__exact=1), "Follow them")
        text = format_html(
            "{} queued; the worker (<code>manage.py work</code>) captures them.{} {}",
            counted(len(runs), "baseline is", "baselines are"),
            first,
            where,
        )
        model_admin.message_user(request, text, messages.SUCCESS)


# -- compared with a baseline
def comparison_panel(run: EvaluationRun) -> SafeString:
    """A run beside its agent's baselines; empty for the baseline itself, and where there is none before it."""
    context = comparison_of(run)
    return SafeString(render_to_string("admin/evaluation/comparison.html", context)) if context else SafeString("")


def comparison_of(run: EvaluationRun) -> dict[str, Any] | None:
    """What `comparison.html` shows: a row per dimension, or why that is left to the command."""
    if run.agent is None or run.status != EvaluationRun.Status.COMPLETED:
        return None
    captured = Baseline.objects.filter(agent=run.agent, judge=run.judge, dimension__in=run.dimensions)
    before = [b for b in captured.select_related("evaluation_run") if b.procedure == run.procedure]
    if not any(b.evaluation_run_id < run.pk for b in before):
        return None
    if _too_large([run.pk, *(b.evaluation_run_id for b in before)]):
        return _left_to_the_command(run.agent)
    earlier = [b.dimension for b in before if b.evaluation_run_id < run.pk]
    try:
        comparison = compare_to_baseline(run, dimensions=earlier, propositions=False)
    except NotComparable:  # the baseline's run was changed meanwhile
        return None
    return None if comparison is None else _context(comparison)


def newest_comparison(agent: Agent, *, judge: str, procedure: str) -> dict[str, Any] | None:
    """The newest evidence by that judge and procedure beside the baselines; None when there is none of newer messages than theirs."""
    newest = newest_since_baselines([agent.pk], Judged(judge=judge, procedure=procedure)).get(agent.pk)
    if not newest:
        return None
    chosen = runs_of(newest)
    runs = {run.pk: run for run in chosen.values()}
    captured = Baseline.objects.filter(agent=agent, judge=judge, procedure=procedure, dimension__in=list(newest))
    context: dict[str, Any] | None = _left_to_the_command(agent)
    if not _too_large([*runs, *captured.values_list("evaluation_run", flat=True)]):
        comparison = compare_runs(chosen, propositions=False)
        context = None if comparison is None else _context(comparison)
    pages = [
        format_html("{} {}", display.page_of(run, f"evaluation {pk}"), display.tags(run.where) if run.where else "")
        for pk, run in sorted(runs.items())
    ]
    return None if context is None else {**context, "run": format_html_join(", ", "{}", ((page,) for page in pages))}


def _left_to_the_command(agent: Agent) -> dict[str, Any]:
    return {"too_large": format_html("<code>manage.py compare --agents {}</code>", agent.slug)}


def _context(comparison: Comparison) -> dict[str, Any]:
    return {
        "baseline": comparison.baseline.name,
        "stale": comparison.stale,
        "notes": [display.visible(note) for note in comparison.notes],
        "rows": [
            {
                "dimension": dimension_badge(change.dimension),
                "before": _number(change, change.baseline, change.baseline_share),
                "now": _number(change, change.candidate, change.share),
                "change": signed(change.delta, 0 if change.counted else 2),
                "interval": interval_text(change.interval),
                "verdict": display.badge(
                    change.verdict, "plain" if change.counted else TONES[change.verdict], change.reason
                ),
                "remarks": "; ".join(_remarks(change)),
            }
            for change in comparison.dimensions
        ],
    }


def _remarks(change: Change) -> list[str]:
    """What a reader must know of a verdict: what would decide, or why nothing does, and what its interval is of."""
    open_ = change.reason if change.verdict in ("possibly drifted", "not enough data") else ""
    more = f"{change.n_more:,} more {change.unit} would decide" if change.n_more else open_
    return list(dict.fromkeys(filter(None, (more, change.interval_note))))


def _number(change: Change, value: float | None, share: Share | None) -> SafeString:
    why = change.reason if change.too_little_scored else ""
    if change.counted and value is not None:
        return number(None, int(value), share=share)
    return number(value, None, share=share, why=why)


def _too_large(runs: Collection[int]) -> bool:
    """Whether there are too many judgements to compare for a page."""
    judgements = EvaluationScore.objects.filter(evaluation_run__in=set(runs)).order_by()
    return judgements.values("pk")[MOST_JUDGEMENTS : MOST_JUDGEMENTS + 1].exists()
