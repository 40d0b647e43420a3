"""What a measurement says beside the baseline, for the pages of agents and evaluation runs; never on lists."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.display import Tone
from agents.models import Agent
from evaluation.admin.display import dimension_badge, number
from evaluation.change.comparison import Change, Comparison, compare_runs, compare_to_baseline
from evaluation.change.evidence import Judged, newest_since_baselines, runs_of
from evaluation.change.measurements import NotComparable
from evaluation.change.tables import interval_text
from evaluation.coverage import Share
from evaluation.models import Baseline, EvaluationRun, EvaluationScore
from evaluation.wording import signed

MOST_JUDGEMENTS = 20_000  # more take seconds; the command has no limit
TONES: dict[str, Tone] = {"drifted": "good", "steady": "good", "cannot tell yet": "plain", "not enough data": "warning"}


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
        found = compare_to_baseline(run, dimensions=earlier, propositions=False)
    except NotComparable:  # the baseline's run was changed meanwhile
        return None
    return None if found is None else _context(found)


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
        found = compare_runs(chosen, propositions=False)
        context = None if found is None else _context(found)
    pages = [
        format_html("{} {}", display.page_of(run, f"evaluation {pk}"), display.tags(run.where) if run.where else "")
        for pk, run in sorted(runs.items())
    ]
    return None if context is None else {**context, "run": format_html_join(", ", "{}", ((page,) for page in pages))}


def _left_to_the_command(agent: Agent) -> dict[str, Any]:
    return {"too_large": format_html("<code>manage.py compare --agents {}</code>", agent.slug)}


def verdict_badge(change: Change) -> SafeString:
    """The verdict with its reason; a change that is sure says in which direction."""
    if change.verdict == "drifted" and not change.counted:
        label, tone = ("worse", "bad") if change.worse else ("better", "good")
        return display.badge(label, tone, change.reason)  # type: ignore[arg-type]
    return display.badge(change.verdict, TONES[change.verdict], change.reason)


def _context(found: Comparison) -> dict[str, Any]:
    return {
        "baseline": found.baseline.name,
        "stale": found.stale,
        "notes": [display.visible(note) for note in found.notes],
        "rows": [
            {
                "dimension": dimension_badge(change.dimension),
                "before": _number(change, change.baseline, change.baseline_share),
                "now": _number(change, change.current, change.share),
                "change": signed(change.delta, 0 if change.counted else 2),
                "interval": interval_text(change),
                "verdict": verdict_badge(change),
                "told": "; ".join(_told(change)),
            }
            for change in found.dimensions
        ],
    }


def _told(change: Change) -> list[str]:
    """What a reader must know of a verdict: what would decide, or why nothing does, and what its interval is of."""
    undecided = change.reason if change.verdict in ("cannot tell yet", "not enough data") else ""
    more = f"{change.n_more:,} more {change.unit} would decide" if change.n_more else undecided
    return list(dict.fromkeys(filter(None, (more, change.interval_note))))


def _number(change: Change, value: float | None, share: Share | None) -> SafeString:
    why = change.reason if change.verdict == "not enough data" else ""
    if change.counted and value is not None:
        return number(None, int(value), share=share)
    return number(value, None, share=share, why=why)


def _too_large(runs: Collection[int]) -> bool:
    """Whether there are too many judgements to compare while somebody waits for a page."""
    judgements = EvaluationScore.objects.filter(evaluation_run__in=set(runs)).order_by()
    return judgements.values("pk")[MOST_JUDGEMENTS : MOST_JUDGEMENTS + 1].exists()
