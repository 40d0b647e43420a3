"""Experiments in the console: the list, the report of one, and going on or stopping."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.commands import Cell
from agents.kit.console import display
from agents.kit.console.forms import CostPreview, as_query, ask, request_form
from agents.kit.console.logs import LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import console_action
from agents.kit.llm.endpoints import problem_of
from agents.kit.llm.requests import Role
from agents.models import Channel
from evaluation.admin.display import judge_badge
from evaluation.experiments.estimate import estimate_experiment
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import cancel, resume_experiment
from evaluation.experiments.printed import headline, tables
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.request import ExperimentRequest, request_experiment

STARTING, PLAYING = "experiments.add_experiment", "experiments.change_experiment"
MOST_BYTES = 200_000  # of a scenario
TONES: dict[str, display.Tone] = {"good": "good", "better": "good", "bad": "bad", "warning": "warning"}


USUAL = "gate-on-off"  # the scenario that is chosen at first
StartingForm = request_form(
    ExperimentRequest,
    *("shipped", "file", "scenario", "scale", "seed", "judge", "actor_model"),
    file=forms.FileField(
        label="Scenario of your own",
        required=False,
        widget=forms.FileInput(attrs={"class": "pl-files"}),
        help_text="a YAML file as docs/how-to/experiment.md describes it; empty = the one chosen above",
    ),
)


@admin.register(Experiment)
class ExperimentAdmin(LogAdmin[Experiment]):
    list_select_related = ("created_by",)
    state = display.column("state", lambda one: display.badge(one.state, "good" if one.report else "plain"))

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(STARTING)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Choose a scenario, see what it takes, and have workers play and judge it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        data = as_query(request, StartingForm, {"shipped": USUAL}).copy()
        if (file := request.FILES.get("file")) is not None:  # what is uploaded is shown, and can be corrected
            data["scenario"] = file.read(MOST_BYTES + 1).decode("utf-8", "replace")
        if data.get("scenario", "").strip():
            data["shipped"] = ""
        form = StartingForm(data)

        def start() -> str:
            experiment = request_experiment(form.asked, user=user_of(request))
            self.log_addition(request, experiment, "started")
            return self.url("change", experiment)

        return ask(
            self, request, form, title="Start an experiment", verb="Start it", do=start,
            preview=lambda: _cost_preview(form.asked), folded=("seed", "judge", "actor_model"),
            about="The same conversations are played with and without a treatment: what did it gain, and what did it harm? Workers play "
            "them, marked synthetic, and judge them.",
            back=(self.url("changelist"), "Back to the experiments"),
        )  # fmt: skip

    def get_panels(self, request: HttpRequest, obj: Experiment) -> list[SafeString]:
        shown = report(obj)
        may_change = request.user.has_perm(PLAYING) and obj.cancelled_at is None
        context: dict[str, Any] = {
            "shown": shown,
            "lines": list(headline(shown)),
            "tables": [
                (
                    title,
                    table(
                        [head.removeprefix(">") for head in heads], [list(map(_cell, row)) for row in rows], label=title
                    ),
                )
                for title, heads, rows in tables(shown)
            ],
            "conversations": _conversations(shown),
            "export": reverse("experiment-export", args=[obj.pk]),
            "forms": ("markdown", "csv"),
            "urls": {name: self.url(name, obj) for name in ("cancel", "resume")},
            "may_cancel": may_change and obj.measured_at is None,
            "may_resume": may_change and bool(shown.unfinished),
        }
        return [
            render_to_string("admin/experiments/experiment.html", context, request),
            *super().get_panels(request, obj),
        ]

    @console_action("cancel", PLAYING)
    def cancel_view(self, request: HttpRequest, row: Experiment) -> str:
        return f"Experiment {cancel(row).pk} is cancelled. What was said stays."

    @console_action("resume", PLAYING)
    def resume_view(self, request: HttpRequest, row: Experiment) -> str:
        return f"{resume_experiment(row)} conversations are queued; the worker (manage.py work) plays them."


def _cost_preview(asked: ExperimentRequest) -> CostPreview:
    scenario = asked.scaled_scenario()
    one = estimate_experiment(scenario, **asked.models)
    cost, calls = None if one.usd is None else Decimal(str(one.usd)), one.judge_calls + one.actor_calls
    money = display.money(cost, unpriced=calls if cost is None else 0) if cost != 0 else display.badge("free", "good")
    acting = f"{display.visible(one.actor_model)}: about {one.actor_calls:,} calls, {one.actor_tokens:,} tokens"
    facts = [
        ("Scenario", display.visible(scenario.title or scenario.name)),
        ("Conversations", f"{one.conversations:,}, of {one.turns:,} turns together"),
        ("Who acts", acting),
        ("Judge", judge_badge(one.judge)),
        ("Calls of the judge", f"{one.judge_calls:,}, {one.judge_tokens:,} tokens"),
        ("Cost, estimated", money),
        ("What it could show", " ".join(one.findings())),
    ]
    roles: tuple[tuple[Role, str], ...] = (("judge", one.judge), ("actor", one.actor_model))
    missing = [text for role, model in roles if (text := problem_of(role, model))]
    note = "What the gate and other stages ask comes on top. It can be cancelled; what was said stays."
    return CostPreview(facts=facts, warnings=missing, note=note)


def _cell(cell: Cell) -> object:
    value, emphasis = cell if isinstance(cell, tuple) else (cell, "")
    if emphasis:
        return display.badge(value, TONES.get(emphasis, "plain"))
    return display.count(value) if isinstance(value, int | None) else display.visible(value)


def _conversations(shown: ExperimentReport) -> list[SafeString]:
    """Links to the conversations that speak most for and against."""
    slugs = {slug for one in (*shown.most_for, *shown.most_against) for slug in (*one.treatment, *one.control)}
    return [
        display.page_of(channel, channel.slug) for channel in Channel.objects.filter(slug__in=slugs).order_by("slug")
    ]
