"""What a measurement says compared with its agent's baselines: for the page of an evaluation and for that of an agent."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.panels import table
from agents.models import Agent
from evaluation.admin.display import TONES, dimension_badge, evaluation_link, number, of_words
from evaluation.change.change import Change
from evaluation.change.comparison import Comparison, compare_runs, compare_to_baseline
from evaluation.change.evidence import Judged, newest_since_baselines, runs_of
from evaluation.change.measurements import NotComparable
from evaluation.models import Baseline, EvaluationRun, EvaluationScore
from evaluation.runs.summary import Share
from evaluation.wording import interval_text, signed

MOST_JUDGEMENTS = 20_000  # more take seconds; the command has no limit


def comparison_panel(run: EvaluationRun) -> SafeString:
    """A run compared with its agent's baselines; empty for the baseline itself, and where there is none before it."""
    if run.agent is None or run.status != EvaluationRun.Status.COMPLETED:
        return SafeString("")
    captured = Baseline.objects.filter(agent=run.agent, judge=run.judge, dimension__in=run.dimensions)
    baselines = [b for b in captured.select_related("evaluation_run") if b.procedure == run.procedure]
    earlier = [b.dimension for b in baselines if b.evaluation_run_id < run.pk]
    if not earlier:
        return SafeString("")
    if _too_large([run.pk, *(b.evaluation_run_id for b in baselines)]):
        return render_to_string("admin/evaluation/comparison.html", _left_to_the_command(run.agent))
    try:
        comparison = compare_to_baseline(run, dimensions=earlier, propositions=False)
    except NotComparable:  # the baseline's run was changed meanwhile
        comparison = None
    return render_to_string("admin/evaluation/comparison.html", _context(comparison)) if comparison else SafeString("")


def newest_comparison(agent: Agent, judged: Judged) -> dict[str, Any] | None:
    """The newest evidence by a judge compared with the baselines; None when there is none of newer messages than theirs."""
    newest = newest_since_baselines([agent.pk], judged).get(agent.pk)
    if not newest:
        return None
    chosen = runs_of(newest)
    runs = {run.pk: run for run in chosen.values()}
    captured = Baseline.objects.filter(
        agent=agent, judge=judged.judge, procedure=judged.procedure, dimension__in=list(newest)
    )
    if _too_large([*runs, *captured.values_list("evaluation_run", flat=True)]):
        context = _left_to_the_command(agent)
    else:
        comparison = compare_runs(chosen, propositions=False)
        if comparison is None:
            return None
        context = _context(comparison)
    pages = ((evaluation_link(pk), display.tags(run.where) if run.where else "") for pk, run in sorted(runs.items()))
    return {**context, "run": format_html_join(", ", "{} {}", pages)}


def _left_to_the_command(agent: Agent) -> dict[str, Any]:
    return {"too_large": format_html("<code>manage.py compare --agents {}</code>", agent.slug)}


def _context(comparison: Comparison) -> dict[str, Any]:
    heads = ("Dimension", "Baseline", "Now", "Change", "95 % interval", "Verdict")
    rows = [_row(change) for change in comparison.dimensions]
    return {
        "baseline": comparison.baseline.name,
        "stale": comparison.stale,
        "notes": [display.visible(note) for note in comparison.notes],
        "table": table(heads, rows, label="Compared with the baseline"),
    }


def _row(change: Change) -> tuple[object, ...]:
    """With what a reader must know of the verdict: what would decide, or why nothing does, and what its interval is of."""
    open_ = change.reason if change.verdict in ("possibly drifted", "not enough data") else ""
    more = f"{change.n_more:,} more {change.unit} would decide" if change.n_more else open_
    remarks = "; ".join(dict.fromkeys(filter(None, (more, change.interval_note))))
    tone = "plain" if change.counted else TONES[change.verdict]
    return (
        dimension_badge(change.dimension),
        _number(change, change.baseline, change.baseline_share),
        _number(change, change.candidate, change.share),
        signed(change.delta, 0 if change.counted else 2),
        interval_text(change.interval),
        format_html(
            '{} <span class="pl-subtle">{}</span>', display.badge(change.verdict, tone, change.reason), remarks
        ),
    )


def _number(change: Change, value: float | None, share: Share | None) -> SafeString:
    if change.counted and value is not None:
        return number(None, int(value), share=share)
    if change.of_words:
        return of_words(value)
    return number(value, None, share=share, why=change.reason if change.too_little_scored else "")


def _too_large(runs: Collection[int]) -> bool:
    """Whether there are too many judgements to compare for a page."""
    judgements = EvaluationScore.objects.filter(evaluation_run__in=set(runs)).order_by()
    return judgements.values("pk")[MOST_JUDGEMENTS : MOST_JUDGEMENTS + 1].exists()
