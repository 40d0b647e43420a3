"""Evaluation runs: what was measured, by whom, what it cost, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.ledger import ALL_TOKENS
from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.filters import DropdownFilter
from agents.console.logs import LogAdmin
from agents.console.panels import table
from agents.console.site import Button, console_page
from agents.models import LLMCall, Message
from evaluation.admin.comparison import comparison_panel
from evaluation.admin.display import (
    agreement_badge,
    baseline_badge,
    counts,
    dimension_badge,
    judge_badge,
    judged_counts,
    meter,
    number,
    procedure_badge,
    simulated_by,
    target,
)
from evaluation.calibration.agreement import calibration_of
from evaluation.models import COUNTED, Dimension, EvaluationRun, EvaluationScore
from evaluation.runs.batches import waiting_words
from evaluation.runs.control import CANCELLABLE, NotPossible, can_resume, cancel_run, resume_run
from evaluation.runs.ideas import DistinctIdea, distinct_ideas
from evaluation.runs.summary import DimensionSummary, PropositionSummary, shares_of, summarize, total, worst_judgement

CHANGE = "evaluation.change_evaluationrun"
IDEAS_SHOWN, PAIRS_SHOWN, PLACES_SHOWN = 100, 15, 5


class DimensionFilter(DropdownFilter):
    """Evaluations in which a dimension was measured."""

    title = "dimension"
    parameter_name = "dimension"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(value, value.replace("_", " ")) for value in Dimension.values]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in Dimension.values:
            return queryset
        listed: QuerySet[Any] = queryset.alias(listed_dimensions=Cast("dimensions", TextField()))
        return listed.filter(listed_dimensions__contains=f'"{self.value()}"')


@admin.register(EvaluationRun)
class EvaluationRunAdmin(LogAdmin[EvaluationRun]):
    """A log: evaluations are not edited. Users who may change them can cancel one and have it go on."""

    own_filters: ClassVar = {"dimension": DimensionFilter}
    list_select_related = ("agent", "channel")
    procedure_mark = display.column("procedure", lambda run: run.procedure)
    measured = display.column("target and dimensions", lambda run: display.lines(target(run), dimension_badges(run)))
    dimension_badges = display.column("dimensions", lambda run: dimension_badges(run))
    overall = display.column(
        "overall score", lambda run: meter(run.overall_score, share=run.share), ordering="overall_score"
    )
    judged = display.column("judgements", lambda run: judged_counts(*run.judged_totals))
    spent = display.column("tokens and cost", lambda run: _spent(run), ordering="token_usage")

    @admin.display(description="evaluation", ordering="pk")
    def name(self, run: EvaluationRun) -> SafeString:
        mark, how = baseline_badge() if run.is_baseline else "", procedure_badge(run.procedure, run.repeats)
        return display.lines(format_html("#{} {} {}", run.pk, mark, how), display.moment(run.created_at))

    def fill_in(self, rows: list[Any]) -> None:
        """Set `share`, `judged_totals` and `ledger` (tokens, cost, unpriced calls) of each run."""
        judged: dict[tuple[int, str], int] = {}
        counted = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in rows]).order_by()
        for run, status, n in counted.values_list("evaluation_run", "status").annotate(n=Count("*")):
            judged[run, status] = n
        shares = shares_of([run.pk for run in rows])
        calls = LLMCall.objects.filter(work_id__in=[run.work_id for run in rows]).order_by().values_list("work_id")
        unpriced = Count("pk", filter=Q(cost_usd__isnull=True))
        sums = calls.annotate(tokens=Sum(ALL_TOKENS), cost=Sum("cost_usd"), unpriced=unpriced)
        ledger: dict[str, Any] = {work: spent for work, *spent in sums}
        for run in rows:
            run.share = total(shares[run.pk].values())
            run.judged_totals = [judged.get((run.pk, s)) for s in ("scored", "trivial", "unscored", "pending")]
            run.ledger = ledger.get(run.work_id, (None, None, 0))

    def get_panels(self, request: HttpRequest, obj: EvaluationRun) -> list[SafeString]:
        agreements = calibration_of(obj.judge, obj.procedure)
        context = {
            "dimensions": [
                {**_dimension(obj, one), "agreement": agreement_badge(agreements.get(name), name)}
                for name, one in summarize(obj).dimensions.items()
            ],
            "target": target(obj),
            "state": display.status_badge(obj),
            "judge": format_html("{} {}", judge_badge(obj.judge), procedure_badge(obj.procedure, obj.repeats)),
            "simulated_by": simulated_by(obj),
            "baseline": baseline_badge() if obj.is_baseline else "",
            "overall": self.overall(obj),
            "judged": self.judged(obj),
            "error": display.visible(obj.error or waiting_words([obj]).get(obj.pk, "")),
            "button": self._button(request, obj),
            "spent": self.spent(obj),
            "live": ""
            if obj.status in EvaluationRun.FINAL
            else f"{reverse('evaluationrun-detail', args=[obj.pk])}?scores=0",
            "calls": display.link(display.list_url(LLMCall, work_id=obj.work_id), "the calls it made"),
            "scores": display.link(scores_url(obj), "all its scores"),
        }
        summary = render_to_string("admin/evaluation/evaluationrun/summary.html", context)
        return [summary, comparison_panel(obj), *super().get_panels(request, obj)]

    def _button(self, request: HttpRequest, run: EvaluationRun) -> Button | None:
        """What the user may do with an evaluation as it stands."""
        if not request.user.has_perm(CHANGE):
            return None
        if run.status in CANCELLABLE:
            why = "Stops it; what was judged stays, and it can go on later."
            return Button(label="Cancel", url=reverse("admin:evaluation_evaluationrun_cancel", args=[run.pk]), why=why)
        if can_resume(run):
            why = "A worker asks what is left; stored judgements are not made again."
            return Button(label="Go on", url=reverse("admin:evaluation_evaluationrun_resume", args=[run.pk]), why=why)
        return None

    @console_page("<int:pk>/cancel/", CHANGE, post=True)
    def cancel_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self._act(request, pk, cancel_run, "is cancelled; what was judged stays")

    @console_page("<int:pk>/resume/", CHANGE, post=True)
    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self._act(request, pk, resume_run, "waits for the worker (manage.py work), which asks only what is left")

    def _act(
        self, request: HttpRequest, pk: int, act: Callable[[EvaluationRun], EvaluationRun], done: str
    ) -> HttpResponse:
        run = get_object_or_404(EvaluationRun, pk=pk)
        try:
            act(run)
        except NotPossible as problem:
            self.message_user(request, f"Nothing was changed: {problem}.", messages.ERROR)
        else:
            self.log_change(request, run, f"{act.__name__.removesuffix('_run')} pressed")
            self.message_user(request, f"Evaluation {pk} {done}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:evaluation_evaluationrun_change", args=[pk]))


def scores_url(run: EvaluationRun, **filters: str) -> str:
    """The list of a run's scores, narrowed by `filters`."""
    return display.list_url(EvaluationScore, run=run.pk, **filters)


def dimension_badges(run: EvaluationRun) -> SafeString:
    return format_html_join(" ", "{}", ((dimension_badge(str(d)),) for d in run.dimensions)) or display.EMPTY


def _spent(run: Any) -> SafeString:
    tokens, cost, unpriced = run.ledger
    return display.lines(display.count(tokens), display.money(cost, unpriced=unpriced))


def _dimension(run: EvaluationRun, summary: DimensionSummary) -> dict[str, Any]:
    """One dimension as the template shows it: score, propositions, and the worst judgement of the weakest one."""
    own = summary.dimension in run.own_dimensions
    weakest = summary.weakest if own else None
    worst = worst_judgement(run, summary.dimension, weakest.id) if weakest is not None else None
    return {
        "badge": dimension_badge(summary.dimension),
        "score": number(summary.score, summary.count, digits=2, share=summary.share, why=summary.reason),
        "reason": summary.reason,
        "noise": "" if summary.noise is None else f"± {summary.noise:.2f}",
        "counts": counts(summary),
        "table": _propositions(run, summary, weakest) if own else _channels(summary),
        "ideas": idea_rows(run) if summary.dimension in COUNTED else [],
        "pairs": _pairs(run, summary.dimension),
        "line_up": line_up_link(run) if summary.dimension == Dimension.CONVERGENCE else "",
        "worst": _worst(worst) if worst is not None else None,
    }


def _propositions(run: EvaluationRun, summary: DimensionSummary, weakest: PropositionSummary | None) -> SafeString:
    rows = []
    for row in summary.propositions:
        url = scores_url(run, dimension__exact=summary.dimension, proposition_id=row.id)
        marks = (
            display.badge("inverted", "plain", "an anti-pattern: its score is 9 − the judge's") if row.inverted else "",
            display.badge("weakest", "bad") if row is weakest else "",
        )
        name = format_html("{} {} {}", display.link(url, row.id, "its scores in this evaluation"), *marks)
        rows.append((name, number(row.score, row.count, share=row.share), f"{row.weight:g}", counts(row)))
    return table(("Proposition", "Mean", "Weight", "Judgements"), rows, label="Propositions")


def _channels(summary: DimensionSummary) -> SafeString:
    """The channels an agent's dimension was measured in, each leading to its own evaluation."""
    rows = [
        (
            display.page_of(part.run, str(part.run.channel)),
            number(part.score, part.count, share=part.share),
            f"{part.messages:,}",
        )
        for part in summary.channels
    ]
    return table(("Channel", "Number", "Messages of the agent"), rows, label="Channels")


def _pairs(run: EvaluationRun, dimension: str) -> SafeString:
    """The pairs of agents whose words are most alike."""
    pairs = run.figures.get(dimension, {}).get("pairs", [])[:PAIRS_SHOWN]
    rows = [(first, second, f"{similarity:.0%}") for first, second, similarity in pairs]
    return table(("Agent", "Agent", "Vocabulary in common"), rows, label="Whose words are most alike")


def _worst(score: EvaluationScore) -> dict[str, Any]:
    said = score.context_snippet or (score.message.text if score.message else "")
    return {
        "score": score.score,
        "page": display.page_of(score, score.proposition_id),
        "claim": display.visible(score.claim),
        "snippet": display.visible(said),
        "place": display.link(transcript_url(score.message), "in its conversation") if score.message else "",
    }


def idea_rows(run: EvaluationRun) -> list[dict[str, Any]]:
    """The distinct ideas of a channel's run, with those that are the same and links to where each was said."""
    if run.channel_id is None:
        return []
    ideas: Sequence[DistinctIdea] = distinct_ideas(run)[:IDEAS_SHOWN]
    wanted = {position for idea in ideas for position in idea.positions[:PLACES_SHOWN]}
    messages_at = {m.position: m for m in Message.objects.filter(channel=run.channel_id, position__in=wanted)}
    return [
        {
            "distinct": idea,
            "places": [
                display.link(transcript_url(messages_at[position]), f"{position}", "in its conversation")
                for position in idea.positions[:PLACES_SHOWN]
                if position in messages_at
            ],
        }
        for idea in ideas
    ]


def line_up_link(run: EvaluationRun) -> SafeString | str:
    """The way from the evaluation of a channel to its voice line-up."""
    if run.channel_id is None:
        return ""
    url = reverse("admin:agents_channel_change", args=[run.channel_id])
    return display.link(f"{url}#line-up", "voice line-up", "whose lines are recognised, free")
