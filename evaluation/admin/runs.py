"""Evaluation runs: what was measured, by whom, what it cost, and what it found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.ledger import ALL_TOKENS
from agents.admin.transcript import transcript_url
from agents.console import display
from agents.console.filters import AgentFilter, DateRangeFilter, ErrorFilter, RecentValuesFilter, tag_filter
from agents.console.logs import Export, LogAdmin, export_of, same
from agents.models import LLMCall, Message
from evaluation.admin.baselines import comparison_panel
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
)
from evaluation.admin.lineups import line_up_link
from evaluation.calibration.agreement import calibration_of
from evaluation.models import COUNTED, Dimension, EvaluationRun, EvaluationScore
from evaluation.runs.batches import waiting_words
from evaluation.runs.control import CANCELLABLE, NotPossible, can_resume, cancel_run, resume_run
from evaluation.runs.ideas import DistinctIdea, distinct_ideas
from evaluation.runs.summary import DimensionSummary, PropositionSummary, shares_of, summarize, total, worst_judgement


def add_totals(runs: Sequence[Any]) -> None:
    """Set `share`, `scored_total` and its likes, `ledger_tokens`, `ledger_cost` and `ledger_unpriced`; None where there is nothing."""
    judged: dict[tuple[int, str], int] = {}
    counted = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs]).order_by()
    for run, status, n in counted.values_list("evaluation_run", "status").annotate(n=Count("*")):
        judged[run, status] = n
    shares = shares_of([run.pk for run in runs])
    calls = LLMCall.objects.filter(work_id__in=[run.work_id for run in runs]).order_by().values("work_id")
    sums = calls.annotate(
        tokens=Sum(ALL_TOKENS), cost=Sum("cost_usd"), unpriced=Count("pk", filter=Q(cost_usd__isnull=True))
    )
    ledger: dict[str, dict[str, Any]] = {row["work_id"]: dict(row) for row in sums}
    for run in runs:
        run.share = total(shares[run.pk].values())
        for status in EvaluationScore.Status.values:
            setattr(run, f"{status}_total", judged.get((run.pk, status)))
        for name in ("tokens", "cost", "unpriced"):
            setattr(run, f"ledger_{name}", ledger.get(run.work_id, {}).get(name))


PERMISSION = "evaluation.change_evaluationrun"


class Button(NamedTuple):
    """A way to act on an evaluation, as its page shows it."""

    label: str
    url: str
    says: str


_ACTS: dict[str, tuple[Callable[[EvaluationRun], EvaluationRun], str]] = {
    "cancel": (cancel_run, "is cancelled; what was judged stays"),
    "resume": (resume_run, "waits for the worker (manage.py work), which asks only what is left"),
}


class ControlledRunAdmin(LogAdmin[EvaluationRun]):
    """Evaluations are a log that nobody edits; whoever may change them can cancel one and have it go on."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.act_view)
        own = [
            path(f"<int:pk>/{name}/", view, kwargs={"act": name}, name=f"evaluation_evaluationrun_{name}")
            for name in _ACTS
        ]
        return [*own, *super().get_urls()]

    def act_view(self, request: HttpRequest, pk: int, act: str) -> HttpResponse:
        """Cancel or resume; the page of the evaluation says what came of it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        run = EvaluationRun.objects.filter(pk=pk).first()
        if run is None:
            raise Http404(f"There is no evaluation {pk}.")
        carry_out, done = _ACTS[act]
        try:
            carry_out(run)
        except NotPossible as problem:
            self.message_user(request, f"Nothing was changed: {problem}.", messages.ERROR)
        else:
            self.log_change(request, run, f"{act} pressed")
            self.message_user(request, f"Evaluation {pk} {done}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:evaluation_evaluationrun_change", args=[pk]))


def buttons_of(request: HttpRequest, run: EvaluationRun) -> list[Button]:
    """What the user may do with an evaluation as it stands."""
    if not request.user.has_perm(PERMISSION):
        return []
    if run.status in CANCELLABLE:
        return [Button("Cancel", _url("cancel", run), "Stops it; what was judged stays, and it can go on later.")]
    if can_resume(run):
        return [
            Button("Go on", _url("resume", run), "A worker asks what is left; stored judgements are not made again.")
        ]
    return []


def _url(act: str, run: EvaluationRun) -> str:
    return reverse(f"admin:evaluation_evaluationrun_{act}", args=[run.pk])


def scores_url(run: EvaluationRun, **filters: str) -> str:
    """The list of a run's scores, narrowed by `filters`."""
    return display.list_url(EvaluationScore, run=run.pk, **filters)


IDEAS_SHOWN, PAIRS_SHOWN, PLACES_SHOWN = 100, 15, 5
RUNS: Export = export_of(
    {
        "id": "pk",
        "agent": "agent.slug",
        "channel": "channel.slug",
        **same(
            *("status", "dimensions", "overall_score", "judge", "is_heuristic", "procedure", "repeats"),
            *("is_baseline", "window", "window_start", "window_end", "where", "history", "history_where"),
            *("samples", "sample_size", "seed", "simulated", "actor_model", "batch", "token_usage", "error"),
            *("persona_digest", "proposition_digest", "created_at", "started_at", "finished_at"),
        ),
    },
    select=("agent", "channel"),
)


class DimensionFilter(admin.SimpleListFilter):
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
class EvaluationRunAdmin(ControlledRunAdmin):
    export = RUNS
    list_display = ("name", "state", "measured", "judge_mark", "overall", "judged", "spent")
    list_display_links = ("name",)
    list_filter = (
        "status",
        ("judge", RecentValuesFilter),
        "is_baseline",
        DimensionFilter,
        ErrorFilter,
        ("agent", AgentFilter),
        tag_filter("where"),
        ("created_at", DateRangeFilter),
    )
    list_select_related = ("agent", "channel")
    ordering = ("-pk",)
    fieldsets = (
        (
            "What was asked",
            {
                "fields": (
                    *("dimension_badges", "window", "earliest", "latest", "where_tags"),
                    *("history", "history_tags", "samples", "sample_size", "seed", "per_call"),
                    *("procedure_mark", "repeats", "additional"),
                )
            },
        ),
        ("Times", {"fields": ("created", "started", "finished", "attempt", "lease_owner")}),
        ("Digests", {"fields": ("persona_digest", "proposition_digest", "spec_digest"), "classes": ("collapse",)}),
    )

    created = display.time_of("created_at")
    started = display.time_of("started_at")
    finished = display.time_of("finished_at")
    earliest = display.time_of("window_start", "earliest message")
    latest = display.time_of("window_end", "latest message")

    def fill_in(self, rows: list[Any]) -> None:
        add_totals(rows)

    def get_panels(self, request: HttpRequest, obj: EvaluationRun) -> list[SafeString]:
        found = summarize(obj)
        agreements = calibration_of(obj.judge, obj.procedure)
        context = {
            "dimensions": [
                {
                    **_dimension_panel(obj, dimension),
                    "agreement": agreement_badge(agreements.get(name), name),
                }
                for name, dimension in found.dimensions.items()
            ],
            "target": self.target(obj),
            "state": self.state(obj),
            "judge": self.judge_mark(obj),
            "procedure": procedure_badge(obj.procedure, obj.repeats),
            "simulated_by": simulated_by(obj),
            "baseline": baseline_badge() if obj.is_baseline else "",
            "overall": self.overall(obj),
            "judged": self.judged(obj),
            "error": display.visible(obj.error or waiting_words([obj]).get(obj.pk, "")),
            "buttons": buttons_of(request, obj),
            "spent": self.spent(obj),
            "live": "" if obj.status in EvaluationRun.FINAL else f"{reverse('evaluationrun-detail', args=[obj.pk])}?scores=0",
            "calls": display.link(display.list_url(LLMCall, work_id=obj.work_id), "the calls it made"),
            "scores": display.link(scores_url(obj), "all its scores"),
        }
        return [
            render_to_string("admin/evaluation/evaluationrun/summary.html", context),
            *filter(None, [comparison_panel(obj)]),
            *super().get_panels(request, obj),
        ]

    @admin.display(description="evaluation", ordering="pk")
    def name(self, run: EvaluationRun) -> SafeString:
        mark = baseline_badge() if run.is_baseline else ""
        how = procedure_badge(run.procedure, run.repeats)
        return display.lines(format_html("#{} {} {}", run.pk, mark, how), display.moment(run.created_at))

    @admin.display(description="target and dimensions")
    def measured(self, run: EvaluationRun) -> SafeString:
        return display.lines(self.target(run), self.dimension_badges(run))

    @admin.display(description="target")
    def target(self, run: EvaluationRun) -> SafeString:
        if run.agent is not None:
            return display.agent_chip(run.agent)
        return (
            display.EMPTY
            if run.channel is None
            else display.link(reverse("admin:agents_channel_transcript", args=[run.channel.pk]), run.channel)
        )

    judge_mark = display.column("judge", lambda run: judge_badge(run.judge), ordering="judge")

    @admin.display(description="dimensions")
    def dimension_badges(self, run: EvaluationRun) -> SafeString:
        return (
            format_html_join(" ", "{}", ((dimension_badge(str(dimension)),) for dimension in run.dimensions))
            or display.EMPTY
        )

    @admin.display(description="overall score", ordering="overall_score")
    def overall(self, run: Any) -> SafeString:
        return meter(run.overall_score, share=getattr(run, "share", None))

    @admin.display(description="judgements")
    def judged(self, run: Any) -> SafeString:
        return judged_counts(run.scored_total, run.trivial_total, run.unscored_total, run.pending_total)

    @admin.display(description="tokens and cost", ordering="token_usage")
    def spent(self, run: Any) -> SafeString:
        cost = display.money(run.ledger_cost, unpriced=run.ledger_unpriced or 0)
        return display.lines(display.count(run.ledger_tokens), cost)

    state = display.column("status", display.status_badge, ordering="status")
    where_tags = display.column("tags asked for", lambda run: display.tags(run.where))
    history_tags = display.column("tags of the history", lambda run: display.tags(run.history_where))
    procedure_mark = display.column("procedure", lambda run: run.procedure)

    @admin.display(description="additional context")
    def additional(self, run: EvaluationRun) -> SafeString:
        given = json.dumps(run.additional_context, ensure_ascii=False, indent=1) if run.additional_context else ""
        return display.block(given)


def _dimension_panel(run: EvaluationRun, found: DimensionSummary) -> dict[str, Any]:
    """One dimension as the template shows it: score, propositions, and the worst judgement of the weakest one."""
    weakest = found.weakest if found.dimension in run.own_dimensions else None
    worst = worst_judgement(run, found.dimension, weakest.id) if weakest is not None else None
    return {
        "badge": dimension_badge(found.dimension),
        "score": number(found.score, found.count, digits=2, share=found.share, why=found.reason),
        "reason": found.reason,
        "noise": "" if found.noise is None else f"± {found.noise:.2f}",
        "counts": counts(found),
        "linked": found.dimension not in run.own_dimensions,
        "channels": channel_rows(found),
        "ideas": idea_rows(run) if found.dimension in COUNTED else [],
        "pairs": pair_rows(run, found.dimension),
        "line_up": line_up_link(run) if found.dimension == Dimension.CONVERGENCE else "",
        "propositions": [_proposition_row(run, found, row, weakest=row is weakest) for row in found.propositions],
        "worst": _worst(worst) if worst is not None else None,
    }


def _proposition_row(
    run: EvaluationRun, found: DimensionSummary, row: PropositionSummary, *, weakest: bool
) -> dict[str, Any]:
    url = scores_url(run, dimension__exact=found.dimension, proposition_id=row.id)
    return {
        "link": display.link(url, row.id, "its scores in this evaluation"),
        "score": number(row.score, row.count, share=row.share),
        "inverted": row.inverted,
        "weight": f"{row.weight:g}",
        "counts": counts(row),
        "weakest": weakest,
    }


def _worst(score: EvaluationScore) -> dict[str, Any]:
    said = score.context_snippet or (score.message.text if score.message else "")
    return {
        "score": score.score,
        "page": display.page_of(score, score.proposition_id),
        "claim": display.visible(score.claim),
        "snippet": display.visible(said),
        "place": display.link(transcript_url(score.message), "in its conversation") if score.message else "",
    }


def channel_rows(found: DimensionSummary) -> list[dict[str, Any]]:
    """The channels an agent's dimension was measured in, each leading to its own evaluation."""
    return [
        {
            "channel": display.page_of(part.run, str(part.run.channel)),
            "score": number(part.score, part.count, share=part.share),
            "messages": f"{part.messages:,}",
        }
        for part in found.channels
    ]


def idea_rows(run: EvaluationRun) -> list[dict[str, Any]]:
    """The distinct ideas of a channel's run, with what was taken for the same and links to where it was said."""
    if run.channel_id is None:
        return []
    ideas = distinct_ideas(run)[:IDEAS_SHOWN]
    wanted = {position for idea in ideas for position in idea.positions[:PLACES_SHOWN]}
    said = {m.position: m for m in Message.objects.filter(channel=run.channel_id, position__in=wanted)}
    return [_idea_row(idea, said) for idea in ideas]


def _idea_row(found: DistinctIdea, said: dict[int, Message]) -> dict[str, Any]:
    places = [said[position] for position in found.positions[:PLACES_SHOWN] if position in said]
    return {
        "idea": display.visible(found.idea.idea),
        "description": display.visible(found.idea.description),
        "same": [display.visible(variant.idea) for variant in found.variants],
        "by": display.visible(", ".join(found.speakers)),
        "places": [
            display.link(transcript_url(message), f"{message.position}", "in its conversation") for message in places
        ],
    }


def pair_rows(run: EvaluationRun, dimension: str) -> list[dict[str, str]]:
    """The pairs of agents whose words are most alike."""
    pairs = run.figures.get(dimension, {}).get("pairs", [])[:PAIRS_SHOWN]
    return [
        {"first": first, "second": second, "similarity": f"{similarity:.0%}"} for first, second, similarity in pairs
    ]
