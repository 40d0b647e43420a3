"""Experiments in the console: the list, the report of one, and going on or stopping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin.picking import AgentsField
from agents.admin.side_by_side import AlignedRow, aligned_page
from agents.admin.transcript import channel_url
from agents.kit.admin.access import user_of
from agents.kit.commands import Cell
from agents.kit.console import display
from agents.kit.console.charts import Interval, intervals
from agents.kit.console.extensions import Button
from agents.kit.console.filters import number_in
from agents.kit.console.forms import CostPreview, as_query, ask, request_form
from agents.kit.console.logs import LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import console_action, console_page, extend
from agents.kit.llm.endpoints import problem_of
from agents.kit.text.wording import difference, signed
from agents.models import Channel
from evaluation.admin.display import judge_badge
from evaluation.dimensions import Dimension
from evaluation.experiments.asking import asked_in
from evaluation.experiments.compare import Row
from evaluation.experiments.estimate import ExperimentEstimate, estimate_experiment
from evaluation.experiments.lab import LabRequest, request_lab, why_not_forked
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.pairs import (
    MeasuredPair,
    Pair,
    control_of,
    find_pair,
    measured_pair,
    message_scores,
    neighbours,
    treatments_of,
)
from evaluation.experiments.play import cancel, resume_experiment
from evaluation.experiments.printed import ReportTable, headline, outcome_lines, tables
from evaluation.experiments.repairs import LabReport
from evaluation.experiments.report import ExperimentReport, report, rounded
from evaluation.experiments.request import ExperimentRequest, request_experiment
from evaluation.experiments.scenario import Scenario
from evaluation.models import is_heuristic

MAY_START = "experiments.add_experiment"
MAY_CHANGE = "experiments.change_experiment"
READS_CONVERSATIONS = ("agents.view_channel", "agents.view_message")
PAIRS_SHOWN = 10  # on the page of an experiment
MOST_BYTES = 200_000  # of a scenario that is uploaded
FIRST_CHOICE = "gate-on-off"  # the scenario that is chosen at first
TONES_OF_VERDICT: dict[str, display.Tone] = {"gain": "good", "harm": "bad", "repairs": "good", "harms": "bad"}
TONES: dict[str, display.Tone] = {"good": "good", "better": "good", "bad": "bad", "warning": "warning"}

StartingForm = request_form(
    ExperimentRequest,
    *("shipped", "agents", "file", "scenario", "scale", "seed", "judge", "actor_model"),
    agents=AgentsField(required=False),
    file=forms.FileField(
        label="Scenario of your own",
        required=False,
        widget=forms.FileInput(attrs={"class": "pl-files"}),
        help_text="a YAML file as docs/how-to/experiment.md describes it; empty = the one chosen above",
    ),
)


LabForm = request_form(LabRequest)


def lab_buttons(request: HttpRequest, channel: Channel) -> list[Button]:
    """Return the button that tries repairs on a real conversation."""
    if why_not_forked(channel):
        return []
    chosen = {"channel": channel.slug}
    at = number_in(request.GET, "at")
    if at is not None:  # the page shows that message
        chosen["at"] = str(at)
    url = f"{reverse('admin:experiments_experiment_lab')}?{urlencode(chosen)}"
    return [Button(label="Try repairs", url=url, why="Fork it and try what keeps the agent in character")]


extend(Channel, MAY_START, buttons=(lab_buttons,))


@admin.register(Experiment)
class ExperimentAdmin(LogAdmin[Experiment]):
    list_select_related = ("created_by",)

    @admin.display(description="state")
    def state(self, experiment: Experiment) -> SafeString:
        return display.badge(experiment.state, "good" if experiment.report else "plain")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(MAY_START)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form of a scenario, then what it would cost; once that is confirmed, store it for workers to play and judge.

        Raises:
            PermissionDenied: The user may not start experiments.
        """
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = StartingForm(_starting_data(request))
        if not request.user.has_perm("agents.view_agent"):
            del form.fields["agents"]

        def start() -> str:
            experiment = request_experiment(form.asked, user=user_of(request))
            self.log_addition(request, experiment, "started")
            return self.url("change", experiment)

        return ask(
            self, request, form, title="Start an experiment", verb="Start it", do=start,
            preview=lambda: _cost_preview(form.asked.scaled_scenario(), form.asked.models),
            folded=("seed", "judge", "actor_model"),
            about="The same conversations are played with and without a treatment: what did it gain, and what did it harm? Workers play "
            "them, marked synthetic, and judge them.",
            back=(self.url("changelist"), "Back to the experiments"),
        )  # fmt: skip

    @console_page("lab/", MAY_START)
    def lab_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form of a laboratory, then what it would cost; once that is confirmed, store it for workers to play and judge."""
        form = LabForm(as_query(request, LabForm))

        def start() -> str:
            experiment = request_lab(form.asked, user=user_of(request))
            self.log_addition(request, experiment, "started")
            return self.url("change", experiment)

        return ask(
            self, request, form, title="Try repairs", verb="Try them", do=start,
            preview=lambda: _cost_preview(form.asked.scenario(), form.asked.models),
            folded=("dimensions", "ask", "questions", "asks", "seed", "judge", "actor_model"),
            about="The conversation is forked at a message, and each fork is played on with one repair, or with none: which works, for how "
            "many turns, and at what cost? The conversation itself is only read; forks are marked synthetic.",
            back=(self.url("changelist"), "Back to the experiments"),
        )  # fmt: skip

    def get_panels(self, request: HttpRequest, obj: Experiment) -> list[SafeString]:
        """Return the report with its buttons, before the panels of every log.

        It can be cancelled until it was played to its end (`measured_at`), and resumed while anything is still to be played or judged.
        """
        experiment_report = report(obj)
        may_change = request.user.has_perm(MAY_CHANGE) and obj.cancelled_at is None
        reads = request.user.has_perms(READS_CONVERSATIONS)
        listed = _listed_pairs(obj, experiment_report)
        context: dict[str, Any] = {
            "report": experiment_report,
            "lines": list(headline(experiment_report)),
            "outcome": list(outcome_lines(experiment_report)),
            "pictures": _pictures(experiment_report),
            "tables": [(report_table.title, _html_table(report_table)) for report_table in tables(experiment_report)],
            "reads": reads,
            "pairs": _pairs_table(listed, obj, pair_url=self.url("pair", obj), reads=reads) if listed else "",
            "pairs_shown": len(listed),
            "pairs_total": obj.scenario["environments"] * len(treatments_of(obj)),
            "export": reverse("experiment-export", args=[obj.pk]),
            "forms": ("markdown", "csv"),
            "urls": {name: self.url(name, obj) for name in ("cancel", "resume")},
            "may_cancel": may_change and obj.measured_at is None,
            "may_resume": may_change and bool(experiment_report.unfinished),
        }
        panel = render_to_string("admin/experiments/experiment.html", context, request)
        return [panel, *super().get_panels(request, obj)]

    @console_page("<int:pk>/pair/", *READS_CONVERSATIONS)
    def pair_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show two conversations of a pair side by side, messages aligned by position, and what differs.

        The address names the treatment (``arm``), the ``repeat`` and the ``number`` of the pair, default the first of each, and the
        position ``after`` which the messages begin.

        Raises:
            PermissionDenied: The user may not view experiments.
            Http404: There is no such experiment or pair.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        experiment = get_object_or_404(Experiment, pk=pk)
        pairs = experiment.scenario["environments"]
        arm = request.GET.get("arm") or treatments_of(experiment)[0]
        repeat = number_in(request.GET, "repeat") or 1
        number = number_in(request.GET, "number") or 1
        pair = find_pair(experiment, arm=arm, repeat=repeat, number=number)
        if pair is None:
            raise Http404(f"There is no pair {number} of {arm!r:.80}, repeat {repeat}; allowed: 1 to {pairs}.")
        aligned = aligned_page(
            request,
            left=pair.control.channel,
            right=pair.treatment.channel,
            after=number_in(request.GET, "after") or 0,
        )
        messages = [line["message"].pk for row in aligned.rows for line in row.lines]
        measured = measured_pair(experiment, pair)
        before, after = neighbours(experiment, arm=arm, repeat=repeat, number=number)
        _add_scores(aligned.rows, message_scores(experiment, pair, messages))

        def url(**changed: Any) -> str:
            if None in changed.values():  # there is no such pair or page
                return ""
            query = {"arm": arm, "repeat": repeat, "number": number, **changed}
            return f"{self.url('pair', experiment)}?{urlencode(query)}"

        return self.page(
            request,
            "admin/experiments/pair.html",
            f"Experiment {experiment.pk}, pair {number}",
            pair=pair,
            number=number,
            pairs=pairs,
            environments=(pair.control, pair.treatment),
            answers=_answers_by_environment(pair),
            measures=_measures_table([measure for measure in measured if not measure.is_same], pair),
            same=[measure.label.lower() for measure in measured if measure.is_same],
            heuristic=is_heuristic(experiment.judge),
            experiment_url=self.url("change", experiment),
            arms=[(name, url(arm=name)) for name in treatments_of(experiment)],
            repeats=[(each, url(repeat=each)) for each in range(1, experiment.scenario["repeats"] + 1)],
            previous=url(number=before),
            next=url(number=after),
            aligned=aligned,
            older=url(after=aligned.older),
            newer=url(after=aligned.newer),
        )

    @console_action("cancel", MAY_CHANGE)
    def cancel_view(self, request: HttpRequest, row: Experiment) -> str:
        return f"Experiment {cancel(row).pk} is cancelled. What was said stays."

    @console_action("resume", MAY_CHANGE)
    def resume_view(self, request: HttpRequest, row: Experiment) -> str:
        return f"{resume_experiment(row)} conversations are queued; the worker (manage.py work) plays them."


def _starting_data(request: HttpRequest) -> QueryDict:
    """Return what the form is filled with. A file that is uploaded is shown as text, and can be corrected there.

    A scenario of one's own takes the place of the shipped one, for only one of the two may be sent.
    """
    data = as_query(request, StartingForm, {"shipped": FIRST_CHOICE}).copy()
    file = request.FILES.get("file")
    if file is not None:
        # What is beyond is not read: the form shows the text cut there.
        data["scenario"] = file.read(MOST_BYTES + 1).decode("utf-8", "replace")
    if data.get("scenario", "").strip():
        data["shipped"] = ""
    return data


def _cost_preview(scenario: Scenario, models: Mapping[str, str]) -> CostPreview:
    """Return what the experiment would take and could show, with warnings where judge or actor cannot be called."""
    estimate = estimate_experiment(scenario, **models)
    acting = f"{display.visible(estimate.actor_model)}: about {estimate.actor_calls:,} calls, {estimate.actor_tokens:,} tokens"
    facts = [
        ("Scenario", display.visible(scenario.title or scenario.name)),
        ("Conversations", f"{estimate.conversations:,}, of {estimate.turns:,} turns together"),
        ("Who acts", acting),
        ("Judge", judge_badge(estimate.judge)),
        ("Calls of the judge", f"{estimate.judge_calls:,}, {estimate.judge_tokens:,} tokens"),
        ("Cost, estimated", _cost_badge(estimate)),
        ("What it could show", " ".join(estimate.findings())),
    ]
    problems = [problem_of("judge", estimate.judge), problem_of("actor", estimate.actor_model)]
    note = "What the gate and other stages ask comes on top. It can be cancelled; what was said stays."
    return CostPreview(facts=facts, warnings=list(filter(None, problems)), note=note)


def _cost_badge(estimate: ExperimentEstimate) -> SafeString | str:
    if estimate.usd is None:
        return display.money(None, unpriced=estimate.judge_calls + estimate.actor_calls)
    if estimate.usd == 0:
        return display.badge("free", "good")
    return display.money(Decimal(str(estimate.usd)), unpriced=0)


def _pictures(experiment_report: ExperimentReport) -> list[SafeString]:
    """Return for each treatment the effects with their intervals, gains to the left and harms to the right; none of a void report.

    What is neither a gain nor a harm, and what has no interval, is in the tables alone.
    """
    if experiment_report.lab is not None:
        return _pictures_of_lab(experiment_report.lab)
    if experiment_report.void:
        return []
    pictures = []
    for arm in dict.fromkeys(row.treatment.arm for row in experiment_report.rows):
        drawn = [_interval_of(row) for row in experiment_report.rows if row.treatment.arm == arm]
        rows = [interval for interval in drawn if interval is not None]
        pictures.append(intervals(rows, label=f"Gains and harms of {arm}", left="gain", right="harm"))
    return pictures


def _pictures_of_lab(lab: LabReport) -> list[SafeString]:
    """Return the differences of all repairs from the control, repairs to the left and harms to the right; none without an interval."""
    drawn = []
    for arm in lab.repairs:
        for effect in arm.effects:
            if effect.delta is None or effect.interval is None:
                continue
            low, high = effect.interval
            text = f"{signed(effect.shown_delta, 2)} [{signed(low, 2)}, {signed(high, 2)}], {effect.verdict}"
            tone = TONES_OF_VERDICT.get(effect.verdict, "plain")
            name = arm.label if len(arm.effects) == 1 else f"{arm.label}: {effect.label.lower()}"
            drawn.append(Interval(name=name, low=-high, value=-effect.delta, high=-low, text=text, tone=tone))
    if not drawn:
        return []
    return [intervals(drawn, label="Repairs against the control", left="repairs", right="harms")]


def _interval_of(row: Row) -> Interval | None:
    """Return an effect in standard deviations, turned so that a gain lies below 0."""
    if row.d is None or row.d_interval is None or not row.better:
        return None
    low, high = row.d_interval
    text = f"{rounded(row.d)} [{rounded(low)}, {rounded(high)}], {row.verdict}"
    value = row.d
    if row.better == "higher":
        low, value, high = -high, -value, -low
    tone = TONES_OF_VERDICT.get(row.verdict, "plain")
    return Interval(name=row.label, low=low, value=value, high=high, text=text, tone=tone)


def _html_table(report_table: ReportTable) -> SafeString:
    heads = [head.removeprefix(">") for head in report_table.heads]
    rows = [[_html_cell(cell) for cell in row] for row in report_table.rows]
    is_series = report_table.heads[0].startswith(">")  # a row for each turn: too many to stand one below the other
    return table(heads, rows, label=report_table.title, stacking=not is_series)


def _html_cell(cell: Cell) -> object:
    value, emphasis = cell if isinstance(cell, tuple) else (cell, "")
    if emphasis:
        return display.badge(value, TONES.get(emphasis, "plain"))
    if value is None or isinstance(value, int):
        return display.count(value)
    return display.visible(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedPair:
    """A pair on the page of an experiment. `speaks`: in which measure it speaks most for or against the treatment, and how much."""

    arm: str
    number: int
    speaks: str = ""


def _listed_pairs(experiment: Experiment, experiment_report: ExperimentReport) -> list[_ListedPair]:
    """Return the pairs that speak most for and against, then the first ones, together at most `PAIRS_SHOWN` and each once."""
    listed: dict[tuple[str, int], _ListedPair] = {}
    for conversation in (*experiment_report.most_for, *experiment_report.most_against):
        label = Dimension(conversation.measure).label
        speaks = f"{label} {signed(conversation.difference, 2)}"
        pair = _ListedPair(arm=conversation.arm, number=conversation.environment, speaks=speaks)
        listed.setdefault((pair.arm, pair.number), pair)
    for number in range(1, experiment.scenario["environments"] + 1):
        for arm in treatments_of(experiment):
            if len(listed) >= PAIRS_SHOWN:
                return list(listed.values())
            listed.setdefault((arm, number), _ListedPair(arm=arm, number=number))
    return list(listed.values())


def _pairs_table(listed: Sequence[_ListedPair], experiment: Experiment, *, pair_url: str, reads: bool) -> SafeString:
    """Return a row per pair: the conversation of the control beside that of the treatment, in the first repeat.

    Args:
        pair_url: Of the pages of pairs. `reads`: whether the user may read conversations: then they are linked.
    """
    control = control_of(experiment)
    environments = {
        (environment.arm, environment.number): environment
        for environment in experiment.environments.filter(
            repeat=1, number__in={pair.number for pair in listed}
        ).select_related("channel")
    }
    rows: list[list[object]] = []
    for pair in listed:
        cells: list[object] = []
        for arm in (control, pair.arm):
            cells.append(_conversation_cell(environments.get((arm, pair.number)), reads=reads))
        name: object = f"Pair {pair.number}"
        is_there = all((arm, pair.number) in environments for arm in (control, pair.arm))
        if reads and is_there:
            query = urlencode({"arm": pair.arm, "number": pair.number})
            name = display.link(f"{pair_url}?{query}", f"Pair {pair.number}, side by side")
        rows.append([name, *cells, pair.arm])
    heads = ["Pair", f"Control: {control}", "Treatment", "Arm"]
    if any(pair.speaks for pair in listed):
        heads.append("Speaks most by")
        for pair, row in zip(listed, rows, strict=True):
            row.append(pair.speaks or display.EMPTY)
    return table(heads, rows, label="Pairs of conversations")


def _conversation_cell(environment: ExperimentEnvironment | None, *, reads: bool) -> object:
    """Return an environment's conversation and how many messages it has; a dash where it was deleted."""
    if environment is None:
        return display.EMPTY
    slug = environment.channel.slug
    conversation = display.link(channel_url(environment.channel_id), slug) if reads else display.visible(slug)
    messages = environment.figures.get("messages")
    return display.lines(conversation, "" if messages is None else f"{messages:,} messages")


def _answers_by_environment(pair: Pair) -> list[tuple[str, str]]:
    """Return the arm and the address of each conversation in which control questions were asked; none but in a laboratory."""
    arms = {asked_in(each.channel.slug): each.arm for each in (pair.control, pair.treatment) if each.answers}
    if not arms:
        return []
    stored = dict(Channel.objects.filter(slug__in=arms).values_list("slug", "pk"))
    return [(arm, channel_url(stored[slug])) for slug, arm in arms.items() if slug in stored]


def _measures_table(measured: Sequence[MeasuredPair], pair: Pair) -> SafeString:
    rows = []
    for measure in measured:
        name = display.lines(measure.label, measure.unit)
        rows.append((name, rounded(measure.control), rounded(measure.treatment), _difference(measure)))
    heads = ("Measure", pair.control.arm, pair.treatment.arm, "Difference")
    return table(heads, rows, label="What differs", stacking=False)


def _difference(measure: MeasuredPair) -> object:
    """Return how much more the treatment has; green where that is the way of a gain, red where it is that of a harm."""
    difference = measure.difference
    if difference is None:
        return display.EMPTY
    tone: display.Tone = "plain"
    if measure.better:
        is_gain = (difference > 0) == (measure.better == "higher")
        tone = "good" if is_gain else "bad"
    return display.badge(signed(difference, 2), tone)


def _add_scores(rows: Sequence[AlignedRow], scores: Mapping[int, Mapping[str, float]]) -> None:
    """Put the scores of each message before its notes; the treatment's with the difference from the control's of the same author."""
    for row in rows:
        control_scores: Mapping[str, float] = {}
        for line in row.lines:
            message = line["message"]
            own = scores.get(message.pk, {})
            badges = []
            for dimension, score in own.items():
                text = f"{Dimension(dimension).label} {score:.1f}"
                tone: display.Tone = "plain"
                if line is row.right and dimension in control_scores:
                    more = difference(control_scores[dimension], score) or 0.0
                    text = f"{text} ({signed(more)})"
                    if more:
                        tone = "good" if more > 0 else "bad"
                badges.append(display.badge(text, tone, "score of 0 to 9, mean of the propositions"))
            line["notes"] = [*badges, *line["notes"]]
            if row.right and row.right["message"].agent_id == message.agent_id:
                control_scores = own
