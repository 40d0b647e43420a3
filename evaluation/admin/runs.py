"""The console's pages of evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from agents.kit.console.logs import READING, LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import console_action
from agents.kit.models import LLMCall
from agents.kit.text.wording import counted, percentage
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
from evaluation.runs.numbers import DimensionSummary, PropositionSummary
from evaluation.runs.shares import shares_of, total
from evaluation.runs.summary import dimension_scores, summarize, waiting_words, worst_judgement
from evaluation.wording import rate

CHANGE = "evaluation.change_evaluationrun"
IDEAS_SHOWN = 100
PAIRS_SHOWN = 15
PLACES_SHOWN = 5  # messages of an idea


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
    """A log: evaluations are not edited. Users who may change them can cancel and resume one."""

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
        baseline = baseline_badge() if run.is_baseline else ""
        procedure = procedure_badge(run.procedure, run.repeats)
        return display.lines(format_html("#{} {} {}", run.pk, baseline, procedure), display.moment(run.created_at))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[EvaluationRun], search_term: str
    ) -> tuple[QuerySet[EvaluationRun], bool]:
        """Leave a capture's evaluations of channels to its agent's line, where the list has no filters; files have them all."""
        # Parameters that are no filters: page, order, all rows on one page, and the mark of a refused filter.
        if request.path == self.url("changelist") and not request.GET.keys() - {"p", "o", "all", "e"}:
            queryset = queryset.filter(~Exists(ChannelShare.objects.filter(channel_run=OuterRef("pk"))))
        return super().get_search_results(request, queryset, search_term)

    def fill_in(self, rows: list[Any]) -> None:
        """Set what the columns show of each run: `share`, `judged_totals`, `ledger` (tokens, cost, unpriced calls) and more.

        What was not counted is None: judgements of a status that none has, tokens and cost of a run that made no call.
        """
        keys = [run.pk for run in rows]
        counts_by_run = _judgements_by_status(keys)
        shares = shares_of(keys)
        scores = dimension_scores(rows)
        spent = _spent_by_work([run.work_id for run in rows])
        links = ChannelShare.objects.filter(agent_run__in=keys).order_by().values_list("agent_run")
        channels = dict(links.annotate(n=Count("*")))
        for run in rows:
            run.share = total(shares[run.pk].values())
            run.dimension_scores = scores.get(run.pk, {})
            run.channels_measured = channels.get(run.pk, 0)
            run.judged_totals = [counts_by_run.get((run.pk, status)) for status in STATUSES]
            run.ledger = spent.get(run.work_id, (None, None, 0))

    def get_panels(self, request: HttpRequest, obj: EvaluationRun) -> list[SafeString]:
        """Show an evaluation's summary before the usual panels.

        Until it ends the page asks for its progress. Users who may change it can cancel it while it waits or runs, and resume it when
        something is left to do.
        """
        summaries = summarize(obj).dimensions
        may_read = request.user.has_perm(READING)
        badges = judge_badges(obj.judge, obj.procedure, list(summaries))
        context = {
            "run": obj,
            "dimensions": [
                {**_dimension(obj, summary, may_read=may_read), "agreement": badges[name]}
                for name, summary in summaries.items()
            ],
            "target": target(obj),
            "procedure": procedure_badge(obj.procedure, obj.repeats),
            "simulated_by": simulated_by(obj),
            "overall": self.overall(obj),
            "judged": self.judged(obj),
            "spent": self.spent(obj),
            "error": obj.error or waiting_words([obj]).get(obj.pk, ""),
            "no_worker": obj.status == EvaluationRun.Status.PENDING and not alive().exists(),
            "calls": display.link(display.list_url(LLMCall, work_id=obj.work_id), "the calls it made"),
            "scores": display.link(scores_url(obj), "all its scores"),
            "buttons": self.get_buttons(request, obj),
        }
        if obj.status not in EvaluationRun.FINAL:
            context["live"] = f"{reverse('evaluationrun-detail', args=[obj.pk])}?scores=0"
        if request.user.has_perm(CHANGE):
            if obj.status in CANCELLABLE:
                context["cancel_url"] = self.url("cancel", obj)
            elif can_resume(obj):
                context["resume_url"] = self.url("resume", obj)
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


STATUSES = ("scored", "trivial", "unscored", "pending")


def _judgements_by_status(runs: Sequence[int]) -> dict[tuple[int, str], int]:
    """Count the judgements of runs by primary key and status."""
    judgements = EvaluationScore.objects.filter(evaluation_run__in=runs).order_by()
    counts: dict[tuple[int, str], int] = {}
    for run, status, n in judgements.values_list("evaluation_run", "status").annotate(n=Count("*")):
        counts[run, status] = n
    return counts


def _spent_by_work(work_ids: Sequence[str]) -> dict[str, Any]:
    """Sum up tokens, cost and unpriced calls by the ledger's name of the work."""
    calls = LLMCall.objects.filter(work_id__in=work_ids).order_by().values_list("work_id")
    unpriced = Count("pk", filter=Q(cost_usd__isnull=True))
    sums = calls.annotate(tokens=Sum(ALL_TOKENS), cost=Sum("cost_usd"), unpriced=unpriced)
    return {work_id: spent for work_id, *spent in sums}


def _channels_link(run: Any) -> SafeString | str:
    """Link to the evaluations of channels that are part of an agent's."""
    if not run.channels_measured:
        return ""
    url = display.list_url(EvaluationRun, part_of=run.pk)
    return display.link(url, f"with {counted(run.channels_measured, 'channel')}")


def scores_url(run: EvaluationRun, **filters: str) -> str:
    """Return the address of the list of a run's scores, narrowed by `filters`."""
    return display.list_url(EvaluationScore, run=run.pk, **filters)


def dimension_badges(run: EvaluationRun) -> SafeString:
    """Show the dimensions that a run measures."""
    badges = [(dimension_badge(str(dimension)),) for dimension in run.dimensions]
    return format_html_join(" ", "{}", badges) or display.EMPTY


def _spent(run: Any) -> SafeString:
    tokens, cost, unpriced = run.ledger
    return display.lines(display.count(tokens), display.money(cost, unpriced=unpriced))


def _dimension(run: EvaluationRun, summary: DimensionSummary, *, may_read: bool) -> dict[str, Any]:
    """Return one dimension as the template shows it: score, propositions, and the worst judgement of the weakest one.

    A dimension that was judged in the runs of an agent's channels has these instead of propositions, and no worst judgement. That and
    ideas quote messages: a user who may not read these (`may_read`) gets neither.
    """
    context: dict[str, Any] = {
        "summary": summary,
        "score": number(summary.score, summary.count, share=summary.share, why=summary.reason or summary.not_evaluable),
        "counts": counts(summary),
        "ideas": idea_rows(run) if may_read and summary.dimension in COUNTED else [],
        "pairs": _pairs(run, summary.dimension),
        "worst": None,
    }
    if summary.dimension not in run.own_dimensions:
        context["table"] = _channels(summary)
        return context
    weakest = summary.weakest
    context["table"] = _propositions(run, summary, weakest)
    if may_read and weakest is not None:
        context["worst"] = worst_judgement(run, summary.dimension, weakest.id)
        context["is_weak"] = weakest.is_weak
    return context


def _propositions(run: EvaluationRun, summary: DimensionSummary, weakest: PropositionSummary | None) -> SafeString:
    """Show the propositions of a dimension with their means; the weakest is marked if it is weak."""
    scores = EvaluationScore.objects.filter(evaluation_run=run, dimension=summary.dimension)
    # The claim of one of its judgements: names that are filled in may differ between them.
    claims = dict(scores.order_by().values_list("proposition_id").annotate(words=Max("claim")))
    rows: list[tuple[object, ...]] = []
    for proposition in summary.propositions:
        url = scores_url(run, dimension__exact=summary.dimension, proposition_id=proposition.id)
        inverted = is_weakest = SafeString("")
        if proposition.inverted:
            inverted = display.badge("anti-pattern", "plain", "an anti-pattern: its score is 9 − the judge's")
        if proposition is weakest and proposition.is_weak:
            is_weakest = display.badge("weakest", "bad")
        link = display.link(url, proposition.id, "its scores in this evaluation")
        name = format_html("{} {} {}", link, inverted, is_weakest)
        claim = format_html('<span dir="auto">{}</span>', display.visible(claims.get(proposition.id) or proposition.id))
        rows.append(
            (
                display.lines(claim, name),
                _mean_of(proposition),
                f"{proposition.weight:g}",
                counts(proposition),
            )
        )
    return table(("Proposition", "Mean", "Weight", "Judgements"), rows, label="Propositions")


def _mean_of(proposition: PropositionSummary) -> SafeString:
    """Show the mean; of a rule that need not hold in every message in how many of ten it holds, and should."""
    mean = number(proposition.score, proposition.count, share=proposition.share)
    if proposition.of_ten is None or proposition.score is None:
        return mean
    return display.lines(mean, rate(proposition.score, proposition.of_ten))


def _channels(summary: DimensionSummary) -> SafeString:
    """Show the channels an agent's dimension was measured in, each with a link to its own evaluation."""
    rows = [
        (
            display.page_of(channel.run, str(channel.run.channel)),
            number(channel.score, channel.count, share=channel.share),
            f"{channel.messages:,}",
        )
        for channel in summary.channels
    ]
    return table(("Channel", "Number", "Messages of the agent"), rows, label="Channels")


def _pairs(run: EvaluationRun, dimension: str) -> SafeString:
    """Show the pairs of agents whose words are most alike."""
    pairs = run.figures.get(dimension, {}).get("pairs", [])[:PAIRS_SHOWN]
    rows = [(first, second, percentage(similarity)) for first, second, similarity in pairs]
    return table(("Agent", "Agent", "Vocabulary in common"), rows, label="Whose words are most alike")


def idea_rows(run: EvaluationRun) -> list[dict[str, Any]]:
    """Return up to 100 distinct ideas of a channel's run, each with links to the first five messages in which it occurs.

    None for an agent's run.
    """
    if run.channel_id is None:
        return []
    ideas = distinct_ideas(run)[:IDEAS_SHOWN]
    positions: set[int] = set()
    for idea in ideas:
        positions.update(idea.positions[:PLACES_SHOWN])
    messages = Message.objects.filter(channel=run.channel_id, position__in=positions)
    message_at = {message.position: message for message in messages}
    return [{"distinct": idea, "places": _message_links(idea, message_at)} for idea in ideas]


def _message_links(idea: DistinctIdea, message_at: Mapping[int, Message]) -> list[SafeString]:
    """Return links to the first messages in which an idea occurs, as far as they are still there."""
    links: list[SafeString] = []
    for position in idea.positions[:PLACES_SHOWN]:
        if position in message_at:
            links.append(display.link(transcript_url(message_at[position]), f"{position}", "in its conversation"))
    return links
