"""Current baselines: their list, what they add to the agents' pages, and the pages that ask before an agent is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Literal
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.db.models import Prefetch, QuerySet, prefetch_related_objects
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.builds import BUILD_TAGS
from agents.kit.console import display
from agents.kit.console.forms import CostPreview, ask, confirmed
from agents.kit.console.panels import table
from agents.kit.console.site import ReadOnlyAdmin, console_page
from agents.kit.text.wording import counted
from agents.models import Agent, Import, Message
from evaluation.admin.asking import FOLDED, measuring_form, measuring_preview, refusing_files, requests_of
from evaluation.admin.display import (
    MEASURE,
    dimension_badge,
    evaluation_link,
    judged_by,
    meter,
    number,
    of_words,
    simulated_by,
)
from evaluation.calibration.admin.trust import agreement_badge
from evaluation.calibration.agreement import all_agreements, calibration_of
from evaluation.calibration.labels import Key
from evaluation.change.admin.drift_overview import compare_url, overview_page
from evaluation.change.evidence import Judged, dropped_tags, is_stale, stale_reasons
from evaluation.change.models import Baseline, Change
from evaluation.change.stored import current_changes
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.control import queue_run
from evaluation.runs.planning import ENOUGH_MESSAGES, RunSpec
from evaluation.runs.request import request_evaluation
from evaluation.runs.summary import Share, shares_of

What = Literal["evaluate", "capture"]
TITLES: dict[What, str] = {"evaluate": "Evaluate {} now", "capture": "Capture a baseline of {}"}
VERBS: dict[What, str] = {"evaluate": "Evaluate now", "capture": "Capture baseline"}


def mark_agreements(baselines: list[Baseline]) -> None:
    """Put each baseline's figure on it, in one query for all."""
    agreements = all_agreements()
    for row in baselines:
        row.agreement = agreements.get(Key(row.judge, row.procedure, row.dimension))  # type: ignore[attr-defined]


def agreement_of_baseline(baseline: Baseline) -> SafeString | str:
    """The figure put there by `mark_agreements`, or looked up for a baseline alone."""
    if not hasattr(baseline, "agreement"):
        calibration = calibration_of(baseline.judge, baseline.procedure).get(baseline.dimension)
        return agreement_badge(calibration, baseline.dimension)
    return agreement_badge(baseline.agreement, baseline.dimension)


@admin.register(Baseline)
class BaselineAdmin(ReadOnlyAdmin[Baseline]):
    ordering = ("agent_id", "judge", "procedure", "dimension")  # an index has it
    value = display.column("score", lambda row: _score(row, row.shares), ordering="score")
    judge_mark = display.column("judge", judged_by, ordering="judge")
    agreement_mark = display.column("agreement with people, swap test", agreement_of_baseline)
    simulated = display.column("simulated by", lambda baseline: simulated_by(baseline.evaluation_run) or display.EMPTY)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Baseline]:
        return super().get_queryset(request).prefetch_related("agent__traits")

    def fill_in(self, rows: list[Any]) -> None:
        mark_agreements(rows)
        reasons, shares = stale_reasons(rows), shares_of({row.evaluation_run_id for row in rows})
        for row in rows:
            row.stale_reasons, row.shares = reasons, shares

    @admin.display(description="persona")
    def stale(self, baseline: Any) -> SafeString:
        if not is_stale(baseline):
            return display.badge("current", "good")
        return stale_badge(baseline.stale_reasons.get(baseline.pk, ""))

    @console_page("overview/", name="evaluation_drift_overview")
    def overview_view(self, request: HttpRequest) -> HttpResponse:
        return overview_page(self, request)

    @console_page("of/<int:agent_id>/evaluate/", MEASURE, name="evaluation_agent_evaluate")
    def evaluate_view(self, request: HttpRequest, agent_id: int) -> HttpResponse:
        return self._ask(request, agent_id, "evaluate")

    @console_page("of/<int:agent_id>/capture/", MEASURE, name="evaluation_agent_capture")
    def capture_view(self, request: HttpRequest, agent_id: int) -> HttpResponse:
        return self._ask(request, agent_id, "capture")

    def _ask(self, request: HttpRequest, agent_id: int, what: What) -> HttpResponse:
        """Estimate and ask; then queue it, and lead to the page on which the evaluation's progress is shown."""
        agent = get_object_or_404(Agent, pk=agent_id)
        captured = Baseline.objects.filter(agent=agent, judge=settings.JUDGE_MODEL).values_list("dimension", flat=True)
        is_baseline = what == "capture"
        form = measuring_form(request, usual=set(captured), is_baseline=is_baseline)

        def estimate() -> CostPreview:
            with refusing_files():
                specs = [asked.spec(agent=agent, is_baseline=is_baseline) for asked in requests_of(form)]
            dropped = dropped_tags(specs).get(agent.slug, "") if is_baseline else ""
            return measuring_preview(specs, simulate=form.asked.simulate, dropped_tags=dropped)

        def queue() -> str:
            for asked in requests_of(form):
                with refusing_files():
                    run, is_same = request_evaluation(asked, agent=agent, is_baseline=is_baseline)
                text = "goes on: the same was asked for within a day" if is_same else "is queued"
                self.message_user(request, f"Evaluation {run.pk} {text}.", messages.SUCCESS)
            before, now = form.cleaned_data.get("against", ""), form.cleaned_data["where"]
            if before and "," not in before + now:
                return compare_url(agent=agent.slug, baseline=before, candidate=now)
            return reverse("admin:evaluation_evaluationrun_change", args=[run.pk])

        return ask(
            self,
            request,
            form,
            title=TITLES[what].format(display.marked(agent.display_name)),
            verb=VERBS[what],
            preview=estimate,
            do=queue,
            back=(reverse("admin:agents_agent_change", args=[agent.pk]), "Back to the agent"),
            folded=FOLDED,
        )


def stale_badge(reason: str = "") -> SafeString:
    badge = display.badge("stale", "warning", reason or "the persona changed since it was captured")
    return format_html('{} <span class="pl-subtle">{}</span>', badge, display.visible(reason)) if reason else badge


def _score(baseline: Baseline, shares: Mapping[int, Mapping[str, Share]]) -> SafeString:
    share = shares.get(baseline.evaluation_run_id, {}).get(baseline.dimension)
    return number(baseline.score, baseline.count, share=share)


def _by_judge(baselines: Iterable[Baseline]) -> list[tuple[Judged, list[Baseline]]]:
    """Baselines per judge and procedure: what was judged differently never stands in one line."""
    rows = sorted(baselines, key=lambda baseline: (baseline.judge, baseline.procedure, baseline.dimension))
    grouped = groupby(rows, key=lambda baseline: Judged(judge=baseline.judge, procedure=baseline.procedure))
    return [(judged, list(group)) for judged, group in grouped]


# What the column reads: as many as three judges leave in each dimension.
NEWEST_BASELINES: Prefetch[Any] = Prefetch(
    "baselines", queryset=Baseline.objects.order_by("-captured_at", "-pk")[:15], to_attr="newest_baselines"
)


def fill_now(agents: list[Any]) -> tuple[object, object] | None:
    """Set `now` of agents: what changed since their baselines, by judge, procedure and dimension.

    Returns:
        The judge of all their baselines, where it is one; then the column does not name it (`names_judge`).
    """
    prefetch_related_objects(agents, NEWEST_BASELINES, "traits")
    judges = {judged for agent in agents for judged, _ in _by_judge(agent.newest_baselines)}
    for agent in agents:
        agent.now, agent.names_judge = {}, len(judges) > 1
    by_key = {agent.pk: agent for agent in agents}
    columns = ("agent", "judge", "procedure", "dimension", "baseline", "candidate", "value")
    for change in current_changes(by_key).filter(proposition="").only(*columns):
        judged = Judged(judge=change.judge, procedure=change.procedure)
        by_key[change.agent_id].now[judged, change.dimension] = change
    return ("judge", judged_by(*judges)) if len(judges) == 1 else None


@admin.display(description="baseline → now")
def baseline_column(agent: Any) -> SafeString:
    """A line per judge: its badge, each dimension's score and the newest since, the lowest first; whether the persona changed since."""
    lines = []
    for judged, group in _by_judge(agent.newest_baselines):
        pairs = [(row, agent.now.get((judged, row.dimension))) for row in group]
        pairs.sort(key=_lowest_first)
        scores = format_html_join(
            " ",
            '<span class="pl-pair">{} {}</span>',
            ((dimension_badge(row.dimension), _then_and_now(row, now)) for row, now in pairs),
        )
        stale = stale_badge() if any(is_stale(row) for row in group) else ""
        lines.append((judged_by(judged) if agent.names_judge else "", scores, stale))
    return format_html_join("", '<div class="pl-line">{} {} {}</div>', lines) or display.EMPTY


def _lowest_first(pair: tuple[Baseline, Change | None]) -> tuple[bool, float]:
    _, change = pair
    score = change.candidate if change is not None else None
    return score is None, score or 0.0


def _then_and_now(row: Baseline, change: Change | None) -> SafeString | str:
    """Return both scores as the comparison has them; of a dimension that nothing newer was scored in, the baseline's."""
    if row.count is not None:
        return f"{row.count:,}"
    score, now = row.score, meter(None, why="nothing newer was scored")
    if change is not None and change.candidate is not None:
        score = change.baseline
        now = of_words(change.candidate) if change.result.of_words else meter(change.candidate)
    elif score is None:
        return "unscored"
    before = "–" if score is None else f"{score:.1f}"
    return format_html('{} <span aria-hidden="true">→</span> {}', before, now)


def baseline_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The agent's baselines, and the ways to its evaluations."""
    baselines = list(agent.baselines.select_related("evaluation_run"))
    mark_agreements(baselines)
    reasons, shares = stale_reasons(baselines), shares_of({row.evaluation_run_id for row in baselines})
    grouped = _by_judge(baselines)
    rows = [
        (
            dimension_badge(row.dimension),
            format_html("{} {}", _score(row, shares), stale_badge(reasons[row.pk]) if row.pk in reasons else ""),
            format_html("{} {}", judged_by(judged), agreement_of_baseline(row)),
            display.moment(row.captured_at),
            evaluation_link(row.evaluation_run_id),
        )
        for judged, group in grouped
        for row in group
    ]
    summary = [
        format_html("{} {}", dimension_badge(row.dimension), number(row.score, row.count))
        for _, group in grouped[:1]
        for row in group
    ]
    context = {
        "table": table(("Dimension", "Score", "Judge", "Captured", "Evaluation"), rows, label="Baselines"),
        "summary": summary,
        "capture_url": reverse("admin:evaluation_agent_capture", args=[agent.pk])
        if request.user.has_perm(MEASURE)
        else "",
        "runs_url": display.list_url(EvaluationRun, agent__id__exact=agent.pk),
        "scores_url": display.list_url(EvaluationScore, evaluation_run__agent__id__exact=agent.pk),
    }
    return render_to_string("admin/change/agent_baselines.html", context, request)


TAGS_LOOKED_AT = 1_000  # messages of an agent


def imported_panel(request: HttpRequest, job: Import) -> SafeString:
    """The evaluations that an import makes possible: of each agent that speaks in it, and of its two newest builds."""
    rows = []
    for agent in Agent.objects.filter(slug__in=job.result.get("spoke", ())).order_by("slug"):
        url = reverse("admin:evaluation_agent_evaluate", args=[agent.pk])
        said = Message.objects.filter(imported_by=job, agent=agent).exclude(tags={}).order_by("-sent_at", "-pk")
        newest = list(said.values_list("tags", flat=True)[:TAGS_LOOKED_AT])
        key = next((key for key in BUILD_TAGS if any(key in tags for tags in newest)), "")
        builds = list(dict.fromkeys(f"{key}={tags[key]}" for tags in newest if key in tags))[:2]
        ways = [(url, "Evaluate all")]
        if builds:
            ways.append((f"{url}?{urlencode({'tag': builds[0]})}", f"Evaluate {builds[0]}"))
        if len(builds) > 1:
            query = urlencode({"tag": builds[0], "against": builds[1]})
            ways.insert(0, (f"{url}?{query}", f"Evaluate {builds[1]} and {builds[0]}, to compare them"))
        rows.append((agent_chip(agent), ways))
    return render_to_string("admin/change/imported.html", {"rows": rows}) if rows else SafeString("")


def _asks_first(agent: Agent, tags: str) -> SafeString:
    """Return why the baseline of an agent is not captured from the list, with a link to the form that asks for its tags."""
    return format_html(
        "{}: not queued. Its baseline is of messages with {}; this one would be of messages with any. {}",
        display.marked(agent.display_name),
        display.visible(tags),
        display.link(reverse("admin:evaluation_agent_capture", args=[agent.pk]), "Choose the messages"),
    )


@admin.action(description="Capture baseline")
@confirmed(
    "Capture baseline",
    "A worker measures each of them as it is now, which becomes what later evaluations are compared with; the baseline there is goes "
    "only when the new one has succeeded. It asks the configured judge: what that costs is estimated on each agent's page, and by "
    f"manage.py capture_baseline --dry-run. For agents with fewer than {ENOUGH_MESSAGES} messages, conversations are simulated first. "
    "A baseline of messages with a tag is not replaced from here: the agent's own page asks which messages.",
)
def capture_baseline(model_admin: Any, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
    """Queue a baseline for each chosen agent; say how many were queued, and for which agents none was, and why."""
    runs: list[EvaluationRun] = []
    for agent in queryset:
        try:
            spec = RunSpec(agent=agent, dimensions=default_dimensions(), is_baseline=True)
            if tags := dropped_tags([spec]).get(agent.slug):
                model_admin.message_user(request, _asks_first(agent, tags), messages.WARNING)
                continue
            runs.append(queue_run(spec, simulate=True)[0])
        except PropositionError as error:
            model_admin.message_user(request, f"{agent}: {error}", messages.ERROR)
    if runs:
        simulated = [str(run.agent) for run in runs if run.awaits_simulation]
        first = (
            f" Simulated first (fewer than {ENOUGH_MESSAGES} messages): {', '.join(simulated)}." if simulated else ""
        )
        text = format_html(
            "{} queued; the worker (<code>manage.py work</code>) captures them.{} {}",
            counted(len(runs), "baseline is", "baselines are"),
            first,
            display.link(display.list_url(EvaluationRun, is_baseline__exact=1), "Follow them"),
        )
        model_admin.message_user(request, text, messages.SUCCESS)
