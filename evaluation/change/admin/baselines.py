"""Current baselines: their list, what they add to the agents' pages, and the pages that ask before an agent is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
from agents.builds import newest_builds
from agents.kit.console import display
from agents.kit.console.forms import CostPreview, ask, confirmed
from agents.kit.console.panels import table
from agents.kit.console.site import ReadOnlyAdmin, console_page
from agents.kit.text.wording import counted
from agents.models import Agent, Import, Message
from evaluation.admin.asking import (
    FOLDED,
    measuring_form,
    measuring_preview,
    refusing_files,
    requests_of,
    ways_to_evaluate,
)
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
from evaluation.calibration.admin.trust import passport_badge, passport_badges
from evaluation.calibration.labels import Key
from evaluation.calibration.passport import passport_of
from evaluation.calibration.stored import agreements_of
from evaluation.change.admin.drift_overview import compare_url, overview_page
from evaluation.change.evidence import JudgeAndProcedure, dropped_tags, stale_reasons
from evaluation.change.models import Baseline, Change
from evaluation.change.stored import current_changes
from evaluation.models import COUNTED, EvaluationRun, EvaluationScore
from evaluation.propositions.files import PropositionError, default_dimensions
from evaluation.runs.control import queue_run
from evaluation.runs.planning import ENOUGH_MESSAGES
from evaluation.runs.request import request_evaluation
from evaluation.runs.shares import Share, shares_of
from evaluation.runs.spec import RunSpec

BASELINE_HEADINGS = ("Dimension", "Score", "Judge", "Captured", "Evaluation")
# As many as three judges leave in each dimension.
NEWEST_BASELINES: Prefetch[Any] = Prefetch(
    "baselines", queryset=Baseline.objects.order_by("-captured_at", "-pk")[:15], to_attr="newest_baselines"
)


# -- their list, and the pages that ask before an agent is measured
def set_passports(baselines: Sequence[Baseline]) -> None:
    """Set `passport` of each baseline, that of its judge, in one query for all; None where the dimension is counted."""
    rows = agreements_of({baseline.judge for baseline in baselines})
    for baseline in baselines:
        key = Key(baseline.judge, baseline.procedure, baseline.dimension)
        baseline.passport = None  # type: ignore[attr-defined]
        if baseline.dimension not in COUNTED:
            baseline.passport = passport_of(key, rows.get(key))  # type: ignore[attr-defined]


def passport_cell(baseline: Baseline) -> SafeString | str:
    """Return the badge of the passport set by `set_passports`; of a baseline alone it is looked up."""
    if not hasattr(baseline, "passport"):
        return passport_badges(baseline.judge, baseline.procedure, [baseline.dimension])[baseline.dimension]
    return passport_badge(baseline.passport) if baseline.passport else ""


@admin.register(Baseline)
class BaselineAdmin(ReadOnlyAdmin[Baseline]):
    ordering = ("agent_id", "judge", "procedure", "dimension")  # an index has it
    value = display.column("score", lambda baseline: _score_cell(baseline, baseline.shares), ordering="score")
    judge_mark = display.column("judge", judged_by, ordering="judge")
    passport_mark = display.column("passport of the judge", passport_cell)
    simulated = display.column("simulated by", lambda baseline: simulated_by(baseline.evaluation_run) or display.EMPTY)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Baseline]:
        return super().get_queryset(request).prefetch_related("agent__traits")

    def fill_in(self, rows: list[Any]) -> None:
        """Set what the columns show of each baseline, in a constant number of queries."""
        set_passports(rows)
        reasons = stale_reasons(rows)
        shares = shares_of({baseline.evaluation_run_id for baseline in rows})
        for baseline in rows:
            baseline.stale_reasons = reasons
            baseline.shares = shares

    @admin.display(description="persona and judge")
    def stale(self, baseline: Any) -> SafeString:
        if baseline.pk not in baseline.stale_reasons:
            return display.badge("current", "good")
        return stale_badge(baseline.stale_reasons[baseline.pk])

    @console_page("overview/", name="evaluation_drift_overview")
    def overview_view(self, request: HttpRequest) -> HttpResponse:
        return overview_page(self, request)

    @console_page("of/<int:agent_id>/evaluate/", MEASURE, name="evaluation_agent_evaluate")
    def evaluate_view(self, request: HttpRequest, agent_id: int) -> HttpResponse:
        return self._ask(request, get_object_or_404(Agent, pk=agent_id), is_baseline=False)

    @console_page("of/<int:agent_id>/capture/", MEASURE, name="evaluation_agent_capture")
    def capture_view(self, request: HttpRequest, agent_id: int) -> HttpResponse:
        return self._ask(request, get_object_or_404(Agent, pk=agent_id), is_baseline=True)

    def _ask(self, request: HttpRequest, agent: Agent, *, is_baseline: bool) -> HttpResponse:
        """Estimate and ask; then queue it, and lead to the page on which the evaluation's progress is shown.

        Where the form names tags to compare with, those are evaluated, too, and it leads to the comparison.
        """
        captured = Baseline.objects.filter(agent=agent, judge=settings.JUDGE_MODEL).values_list("dimension", flat=True)
        form = measuring_form(request, usual=set(captured), is_baseline=is_baseline)
        name = display.marked(agent.display_name)
        if is_baseline:
            title = f"Capture a baseline of {name}"
            verb = "Capture baseline"
        else:
            title = f"Evaluate {name} now"
            verb = "Evaluate now"

        def estimate() -> CostPreview:
            """Return what measuring would take; of a baseline also the tags of the old one that the new one would not ask for."""
            with refusing_files():
                specs = [body.spec(agent=agent, is_baseline=is_baseline) for body in requests_of(form)]
            dropped = dropped_tags(specs).get(agent.slug, "") if is_baseline else ""
            return measuring_preview(specs, simulate=form.asked.simulate, dropped_tags=dropped)

        def queue() -> str:
            """Queue the evaluations, and return where their progress is shown."""
            for body in requests_of(form):
                with refusing_files():
                    run, is_same = request_evaluation(body, agent=agent, is_baseline=is_baseline)
                text = "goes on: the same was asked for within a day" if is_same else "is queued"
                self.message_user(request, f"Evaluation {run.pk} {text}.", messages.SUCCESS)
            before = form.cleaned_data.get("against", "")
            now = form.cleaned_data["where"]
            if before and "," not in before + now:  # the page that compares takes a single tag on each side
                return compare_url(agent=agent.slug, baseline=before, candidate=now)
            return reverse("admin:evaluation_evaluationrun_change", args=[run.pk])

        return ask(
            self,
            request,
            form,
            title=title,
            verb=verb,
            preview=estimate,
            do=queue,
            back=(reverse("admin:agents_agent_change", args=[agent.pk]), "Back to the agent"),
            folded=FOLDED,
        )


def stale_badge(reason: str = "") -> SafeString:
    """Return the badge of a stale baseline (`stale_reasons`), with the reason beside it where one is given."""
    badge = display.badge("stale", "warning", reason or "the persona or the judge changed since it was captured")
    if not reason:
        return badge
    return format_html('{} <span class="pl-subtle">{}</span>', badge, display.visible(reason))


def _score_cell(baseline: Baseline, shares: Mapping[int, Mapping[str, Share]]) -> SafeString:
    share = shares.get(baseline.evaluation_run_id, {}).get(baseline.dimension)
    return number(baseline.score, baseline.count, share=share)


def _by_judge(baselines: Iterable[Baseline]) -> dict[JudgeAndProcedure, list[Baseline]]:
    """Return baselines by judge and procedure: what was judged differently never stands in one line."""
    grouped: dict[JudgeAndProcedure, list[Baseline]] = {}
    for baseline in sorted(baselines, key=lambda baseline: (baseline.judge, baseline.procedure, baseline.dimension)):
        judged = JudgeAndProcedure(judge=baseline.judge, procedure=baseline.procedure)
        grouped.setdefault(judged, []).append(baseline)
    return grouped


# -- in the list of agents
def fill_now(agents: list[Any]) -> tuple[object, object] | None:
    """Set on each agent `newest_baselines`, the keys of those that are stale, and `now`: what changed since, by judge with procedure, and
    dimension.

    Returns:
        The judge of all their baselines, where it is one; then the column does not name it (`names_judge`).
    """
    prefetch_related_objects(agents, NEWEST_BASELINES, "traits")
    judges = {judged for agent in agents for judged in _by_judge(agent.newest_baselines)}
    stale = stale_reasons(baseline for agent in agents for baseline in agent.newest_baselines)
    agent_by_key = {}
    for agent in agents:
        agent.now = {}
        agent.stale_baselines = stale.keys()
        agent.names_judge = len(judges) > 1
        agent_by_key[agent.pk] = agent
    columns = ("agent", "judge", "procedure", "dimension", "baseline", "candidate", "value")
    for change in current_changes(agent_by_key).filter(proposition="").only(*columns):
        judged = JudgeAndProcedure(judge=change.judge, procedure=change.procedure)
        agent_by_key[change.agent_id].now[judged, change.dimension] = change
    return ("judge", judged_by(*judges)) if len(judges) == 1 else None


@admin.display(description="baseline → now")
def baseline_column(agent: Any) -> SafeString:
    """Return a line per judge: its badge, each dimension's score and the newest since, the lowest first; whether one is stale.

    `fill_now` has set what it shows; the badge is left out where all agents of the list have the same judge.
    """
    lines = []
    for judged, baselines in _by_judge(agent.newest_baselines).items():
        pairs = [(baseline, agent.now.get((judged, baseline.dimension))) for baseline in baselines]
        pairs.sort(key=_lowest_first)
        cells = [(dimension_badge(baseline.dimension), _then_and_now(baseline, change)) for baseline, change in pairs]
        scores = format_html_join(" ", '<span class="pl-pair">{} {}</span>', cells)
        judge = judged_by(judged) if agent.names_judge else ""
        stale = stale_badge() if any(baseline.pk in agent.stale_baselines for baseline in baselines) else ""
        lines.append((judge, scores, stale))
    return format_html_join("", '<div class="pl-line">{} {} {}</div>', lines) or display.EMPTY


def _lowest_first(pair: tuple[Baseline, Change | None]) -> tuple[bool, float]:
    """Return the key that puts the lowest score now first, and dimensions without one last."""
    _, change = pair
    if change is None or change.candidate is None:
        return True, 0.0
    return False, change.candidate


def _then_and_now(baseline: Baseline, change: Change | None) -> SafeString | str:
    """Return both scores as the comparison has them, else the baseline's alone: nothing newer was scored. Of ideas the baseline's count."""
    if baseline.count is not None:
        return f"{baseline.count:,}"
    if change is not None and change.candidate is not None:
        before = change.baseline
        now = of_words(change.candidate) if change.result.of_words else meter(change.candidate)
    elif baseline.score is not None:
        before = baseline.score
        now = meter(None, why="nothing newer was scored")
    else:
        return "unscored"
    text = "–" if before is None else f"{before:.1f}"
    return format_html('{} <span aria-hidden="true">→</span> {}', text, now)


# -- on an agent's page
def baseline_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Return the agent's baselines, and the ways to its evaluations."""
    baselines = list(agent.baselines.select_related("evaluation_run"))
    set_passports(baselines)
    reasons = stale_reasons(baselines)
    shares = shares_of({baseline.evaluation_run_id for baseline in baselines})
    by_judge = _by_judge(baselines)
    rows = []
    for judged, of_judge in by_judge.items():
        for baseline in of_judge:
            stale = stale_badge(reasons[baseline.pk]) if baseline.pk in reasons else ""
            rows.append(
                (
                    dimension_badge(baseline.dimension),
                    format_html("{} {}", _score_cell(baseline, shares), stale),
                    format_html("{} {}", judged_by(judged), passport_cell(baseline)),
                    display.moment(baseline.captured_at),
                    evaluation_link(baseline.evaluation_run_id),
                )
            )
    summary = []  # what stands on the folded panel
    for baseline in next(iter(by_judge.values()), []):  # those of the first judge
        score = number(baseline.score, baseline.count)
        summary.append(format_html("{} {}", dimension_badge(baseline.dimension), score))
    capture_url = ""
    if request.user.has_perm(MEASURE):
        capture_url = reverse("admin:evaluation_agent_capture", args=[agent.pk])
    context = {
        "table": table(BASELINE_HEADINGS, rows, label="Baselines"),
        "summary": summary,
        "capture_url": capture_url,
        "runs_url": display.list_url(EvaluationRun, agent__id__exact=agent.pk),
        "scores_url": display.list_url(EvaluationScore, evaluation_run__agent__id__exact=agent.pk),
    }
    return render_to_string("admin/change/agent_baselines.html", context, request)


# -- on an import's page
def imported_panel(request: HttpRequest, job: Import) -> SafeString:
    """Return the evaluations that an import makes possible: of each agent that speaks in it, and of its two newest builds.

    Who may write propositions is led to a new one of the agent, too.
    """
    rows = []
    for agent in Agent.objects.filter(slug__in=job.result.get("spoke", ())).order_by("slug"):
        messages = Message.objects.filter(imported_by=job, agent=agent).exclude(tags={}).order_by("-sent_at", "-pk")
        rules_url = ""
        if request.user.has_perm("evaluation.change_proposition"):
            rules_url = reverse("admin:evaluation_proposition_new", args=[agent.slug])
        rows.append((agent_chip(agent), ways_to_evaluate(agent, newest_builds(messages)), rules_url))
    return render_to_string("admin/change/imported.html", {"rows": rows}) if rows else SafeString("")


# -- the action of the list of agents
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
            tags = dropped_tags([spec]).get(agent.slug)
            if tags:
                model_admin.message_user(request, _asks_first(agent, tags), messages.WARNING)
                continue
            run, _ = queue_run(spec, simulate=True)  # simulated only where the agent has little speech
            runs.append(run)
        except PropositionError as error:
            model_admin.message_user(request, f"{agent}: {error}", messages.ERROR)
    if runs:
        model_admin.message_user(request, _queued_text(runs), messages.SUCCESS)


def _queued_text(runs: Sequence[EvaluationRun]) -> SafeString:
    """Return how many baselines were queued, and which agents are simulated first."""
    simulated = [str(run.agent) for run in runs if run.awaits_simulation]
    first = ""
    if simulated:
        first = f" Simulated first (fewer than {ENOUGH_MESSAGES} messages): {', '.join(simulated)}."
    return format_html(
        "{} queued; the worker (<code>manage.py work</code>) captures them.{} {}",
        counted(len(runs), "baseline is", "baselines are"),
        first,
        display.link(display.list_url(EvaluationRun, is_baseline__exact=1), "Follow them"),
    )
