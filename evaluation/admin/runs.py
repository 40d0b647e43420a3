"""Evaluation runs: what was measured, by whom, what it cost, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.kit.admin.ledger import ALL_TOKENS
from agents.kit.console import display
from agents.kit.console.filters import DropdownFilter
from agents.kit.console.logs import LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import console_action
from agents.kit.models import LLMCall
from agents.kit.text.wording import counted
from agents.kit.work.worker import alive
from agents.models import Message
from evaluation.admin.display import (
    baseline_badge,
    counts,
    dimension_badge,
    judge_badges,
    judged_counts,
    number,
    overall_meter,
    procedure_badge,
    simulated_by,
    target,
)
from evaluation.models import COUNTED, ChannelShare, Dimension, EvaluationRun, EvaluationScore
from evaluation.runs.control import CANCELLABLE, can_resume, cancel_run, resume_run
from evaluation.runs.ideas import DistinctIdea, distinct_ideas
from evaluation.runs.summary import (
    DimensionSummary,
    PropositionSummary,
    dimension_scores,
    shares_of,
    summarize,
    total,
    waiting_words,
    worst_judgement,
)

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
    actions = ()  # type: ignore[assignment]  # apps above add some
    procedure_mark = display.column("procedure", lambda run: run.procedure)
    measured = display.column(
        "target and dimensions", lambda run: display.lines(target(run), dimension_badges(run), _channels_link(run))
    )
    dimension_badges = display.column("dimensions", lambda run: dimension_badges(run))
    overall = display.column(
        "overall score",
        lambda run: overall_meter(run.overall_score, run.dimension_scores, share=run.share),
        ordering="overall_score",
    )
    judged = display.column("judgements", lambda run: judged_counts(*run.judged_totals))
    spent = display.column("tokens and cost", lambda run: _spent(run), ordering="token_usage")

    @admin.display(description="evaluation", ordering="pk")
    def name(self, run: EvaluationRun) -> SafeString:
        mark, how = baseline_badge() if run.is_baseline else "", procedure_badge(run.procedure, run.repeats)
        return display.lines(format_html("#{} {} {}", run.pk, mark, how), display.moment(run.created_at))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[EvaluationRun], search_term: str
    ) -> tuple[QuerySet[EvaluationRun], bool]:
        """Without filters the list names a capture's evaluations of channels in one line, the agent's; files have them all."""
        if request.path == self.url("changelist") and not request.GET.keys() - {"p", "o", "all", "e"}:
            queryset = queryset.filter(~Exists(ChannelShare.objects.filter(channel_run=OuterRef("pk"))))
        return super().get_search_results(request, queryset, search_term)

    def fill_in(self, rows: list[Any]) -> None:
        """Set `share`, `judged_totals` and `ledger` (tokens, cost, unpriced calls) of each run."""
        judged: dict[tuple[int, str], int] = {}
        counted = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in rows]).order_by()
        for run, status, n in counted.values_list("evaluation_run", "status").annotate(n=Count("*")):
            judged[run, status] = n
        shares, scores = shares_of([run.pk for run in rows]), dimension_scores(rows)
        calls = LLMCall.objects.filter(work_id__in=[run.work_id for run in rows]).order_by().values_list("work_id")
        unpriced = Count("pk", filter=Q(cost_usd__isnull=True))
        sums = calls.annotate(tokens=Sum(ALL_TOKENS), cost=Sum("cost_usd"), unpriced=unpriced)
        ledger: dict[str, Any] = {work: spent for work, *spent in sums}
        parts = ChannelShare.objects.filter(agent_run__in=[run.pk for run in rows]).order_by().values_list("agent_run")
        channels = dict(parts.annotate(n=Count("*")))
        for run in rows:
            run.share, run.dimension_scores = total(shares[run.pk].values()), scores.get(run.pk, {})
            run.channels_measured = channels.get(run.pk, 0)
            run.judged_totals = [judged.get((run.pk, s)) for s in ("scored", "trivial", "unscored", "pending")]
            run.ledger = ledger.get(run.work_id, (None, None, 0))

    def get_panels(self, request: HttpRequest, obj: EvaluationRun) -> list[SafeString]:
        summaries = summarize(obj).dimensions
        badges = judge_badges(obj.judge, obj.procedure, list(summaries))
        may = request.user.has_perm(CHANGE)
        live = "" if obj.status in EvaluationRun.FINAL else f"{reverse('evaluationrun-detail', args=[obj.pk])}?scores=0"
        context = {
            "run": obj,
            "dimensions": [{**_dimension(obj, one), "agreement": badges[name]} for name, one in summaries.items()],
            "target": target(obj),
            "procedure": procedure_badge(obj.procedure, obj.repeats),
            "simulated_by": simulated_by(obj),
            "overall": self.overall(obj),
            "judged": self.judged(obj),
            "spent": self.spent(obj),
            "error": obj.error or waiting_words([obj]).get(obj.pk, ""),
            "cancel_url": self.url("cancel", obj) if may and obj.status in CANCELLABLE else "",
            "resume_url": self.url("resume", obj) if may and obj.status not in CANCELLABLE and can_resume(obj) else "",
            "live": live,
            "no_worker": obj.status == EvaluationRun.Status.PENDING and not alive().exists(),
            "calls": display.link(display.list_url(LLMCall, work_id=obj.work_id), "the calls it made"),
            "scores": display.link(scores_url(obj), "all its scores"),
            "buttons": self.get_buttons(request, obj),
        }
        summary = render_to_string("admin/evaluation/evaluationrun/summary.html", context)
        return [summary, *super().get_panels(request, obj)]

    @console_action("cancel", CHANGE)
    def cancel_view(self, request: HttpRequest, row: EvaluationRun) -> str:
        cancel_run(row)
        return f"Evaluation {row.pk} is cancelled; what was judged stays."

    @console_action("resume", CHANGE)
    def resume_view(self, request: HttpRequest, row: EvaluationRun) -> str:
        resume_run(row)
        return f"Evaluation {row.pk} waits for the worker (manage.py work), which asks only what is left."


def _channels_link(run: Any) -> SafeString | str:
    """The evaluations of channels that are part of an agent's."""
    url = display.list_url(EvaluationRun, part_of=run.pk)
    return display.link(url, f"with {counted(run.channels_measured, 'channel')}") if run.channels_measured else ""


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
    return {
        "of": summary,
        "score": number(summary.score, summary.count, digits=2, share=summary.share, why=summary.reason),
        "counts": counts(summary),
        "table": _propositions(run, summary, weakest) if own else _channels(summary),
        "ideas": idea_rows(run) if summary.dimension in COUNTED else [],
        "pairs": _pairs(run, summary.dimension),
        "worst": worst_judgement(run, summary.dimension, weakest.id) if weakest is not None else None,
    }


def _propositions(run: EvaluationRun, summary: DimensionSummary, weakest: PropositionSummary | None) -> SafeString:
    rows = []
    asked = EvaluationScore.objects.filter(evaluation_run=run, dimension=summary.dimension)
    claims = dict(asked.order_by().values_list("proposition_id").annotate(words=Max("claim")))
    for row in summary.propositions:
        url = scores_url(run, dimension__exact=summary.dimension, proposition_id=row.id)
        marks = (
            display.badge("inverted", "plain", "an anti-pattern: its score is 9 − the judge's") if row.inverted else "",
            display.badge("weakest", "bad") if row is weakest else "",
        )
        name = format_html("{} {} {}", display.link(url, row.id, "its scores in this evaluation"), *marks)
        rows.append(
            (
                display.lines(
                    format_html('<span dir="auto">{}</span>', display.visible(claims.get(row.id) or row.id)), name
                ),
                number(row.score, row.count, share=row.share),
                f"{row.weight:g}",
                counts(row),
            )
        )
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
