"""The console's pages of schedules: a form to make and change them, actions, and what they measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.bodies import Refused
from agents.kit.console import display
from agents.kit.console.forms import confirmed, report_done
from agents.kit.console.panels import table
from agents.kit.console.site import Button, JSONText, ModelAdmin, TextInput
from agents.kit.use_cases import read_texts, renamed
from evaluation.admin.display import dimension_badge, evaluation_link, judge_badge, overall_meter
from evaluation.models import Dimension, EvaluationRun, EvaluationSchedule
from evaluation.runs.request import EvaluationRequest
from evaluation.runs.schedules import ALLOWED_EVERY, every_name, fire_now, overlap_note, parse_every
from evaluation.runs.shares import shares_of, total
from evaluation.runs.summary import dimension_scores

if TYPE_CHECKING:
    ScheduleModelForm = forms.ModelForm[EvaluationSchedule]
else:
    ScheduleModelForm = forms.ModelForm

RUNS_SHOWN = 20
AGENTS_SHOWN = 5


class BackgroundField(JSONText):
    """Background as YAML or JSON, checked as that of a single evaluation."""

    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        try:
            return read_texts(EvaluationRequest, {"additional_context": value}).additional_context
        except Refused as refused:
            sentences = []
            for location, sentence in refused.errors.items():
                sentences.append(renamed(sentence, location, to=self.label) or sentence)
            raise forms.ValidationError(sentences) from None


class ScheduleForm(ScheduleModelForm):
    """The form of a schedule. The model checks window, tags and limits, field by field."""

    every = forms.CharField(widget=TextInput, max_length=10, help_text=ALLOWED_EVERY)
    dimensions = forms.MultipleChoiceField(
        choices=Dimension.choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="none = every dimension with propositions",
    )

    class Meta:
        model = EvaluationSchedule
        exclude = ("every_minutes",)
        field_classes: ClassVar = {"additional_context": BackgroundField}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.setdefault("every", every_name(self.instance.every_minutes))

    def clean_every(self) -> str:
        text: str = self.cleaned_data["every"]
        try:
            self.instance.every_minutes = parse_every(text)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        return text


@admin.register(EvaluationSchedule)
class EvaluationScheduleAdmin(ModelAdmin[EvaluationSchedule]):
    form = ScheduleForm
    autocomplete_fields = ("agents",)
    actions = ("fire", "pause", "resume")
    fieldsets = (
        (None, {"fields": ("name", "is_active")}),
        (
            "What is measured",
            {"fields": ("agents", "dimensions", "window", "where", "samples", "judge", "additional_context", "batch")},
        ),
        ("When", {"fields": ("every", "next_at")}),
        ("Alerts", {"fields": ("drift_limit",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[EvaluationSchedule]:
        return super().get_queryset(request).prefetch_related("agents")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"next_at": timezone.now(), **super().get_changeform_initial_data(request)}

    def get_panels(self, request: HttpRequest, obj: EvaluationSchedule) -> list[SafeString]:
        stored = EvaluationSchedule.objects.get(pk=obj.pk)  # a form that was refused has put what was typed into `obj`
        return [*super().get_panels(request, obj), _history(stored, self.get_buttons(request, stored))]

    @admin.action(description="Fire now", permissions=["change"])
    @confirmed(
        "Fire now",
        "Each measures its agents once now, in addition to its times, and asks its judge, which may cost money.",
    )
    def fire(self, request: HttpRequest, queryset: QuerySet[EvaluationSchedule]) -> None:
        """Fire each of the chosen schedules; say what came of it, as a warning where no evaluation was queued."""
        for schedule in queryset:
            fired = fire_now(schedule)
            level = messages.SUCCESS if fired.runs else messages.WARNING
            self.message_user(request, f"{schedule}: {fired.outcome}.", level)

    @admin.action(description="Pause", permissions=["change"])
    def pause(self, request: HttpRequest, queryset: QuerySet[EvaluationSchedule]) -> None:
        self._switch(request, queryset, is_active=False)

    @admin.action(description="Resume", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: QuerySet[EvaluationSchedule]) -> None:
        self._switch(request, queryset, is_active=True)

    def _switch(self, request: HttpRequest, queryset: QuerySet[EvaluationSchedule], *, is_active: bool) -> None:
        chosen = EvaluationSchedule.objects.filter(pk__in=queryset.values("pk"))
        done = chosen.exclude(is_active=is_active).update(is_active=is_active)
        report_done(self, request, "schedule", "resumed" if is_active else "paused", done=done, chosen=chosen.count())

    @admin.display(description="schedule", ordering="name")
    def name_and_state(self, schedule: EvaluationSchedule) -> SafeString:
        state = display.badge("active", "good") if schedule.is_active else display.badge("paused")
        return format_html("<strong>{}</strong> {}", display.isolated(schedule.name), state)

    @admin.display(description="agents")
    def whom(self, schedule: EvaluationSchedule) -> SafeString | str:
        agents = list(schedule.agents.all())
        if not agents:
            return display.isolated("all active")
        names = ", ".join(agent.display_name for agent in agents[:AGENTS_SHOWN])
        if len(agents) > AGENTS_SHOWN:
            names += f" and {len(agents) - AGENTS_SHOWN} more"
        return display.isolated(names)

    @admin.display(description="dimensions")
    def what(self, schedule: EvaluationSchedule) -> SafeString | str:
        badges = [(dimension_badge(str(name)),) for name in schedule.dimensions]
        return format_html_join(" ", "{}", badges) or "all"

    @admin.display(description="window, every")
    def how(self, schedule: EvaluationSchedule) -> SafeString:
        limit = f"alerts at {schedule.drift_limit:g} points"
        return display.lines(f"{schedule.window} every {every_name(schedule.every_minutes)}", limit)

    @admin.display(description="next", ordering="next_at")
    def due(self, schedule: EvaluationSchedule) -> SafeString:
        return display.moment(schedule.next_at) if schedule.is_active else display.EMPTY

    @admin.display(description="last time")
    def outcome(self, schedule: EvaluationSchedule) -> SafeString:
        if schedule.last_fired_at is None:
            return display.EMPTY
        return display.lines(display.moment(schedule.last_fired_at), display.shortened(schedule.last_outcome, 80))


def _history(schedule: EvaluationSchedule, buttons: list[Button]) -> SafeString:
    """Show the 20 newest evaluations of agents that a schedule asked for, with its last outcome and a note where drift is tested rarely.

    The judge is shown once where it is the same for all, else in a column.
    """
    newest = schedule.runs.filter(agent__isnull=False).select_related("agent").order_by("-created_at", "-pk")
    runs = list(newest[:RUNS_SHOWN])
    shares = shares_of([run.pk for run in runs])
    scores = dimension_scores(runs)
    judges = {run.judge for run in runs}
    heads = ["Evaluation", "Agent", "Status", "Overall score"]
    if len(judges) > 1:
        heads.append("Judge")
    rows: list[list[object]] = []
    for run in runs:
        share = total(shares[run.pk].values())
        row: list[object] = [
            display.lines(evaluation_link(run.pk), display.moment(run.created_at)),
            agent_chip(run.agent),
            display.status_badge(run),
            overall_meter(run.overall_score, scores.get(run.pk, {}), share=share),
        ]
        if len(judges) > 1:
            row.append(judge_badge(run.judge))
        rows.append(row)
    context = {
        "table": table(heads, rows, label="What it measured"),
        "judge": judge_badge(*judges) if len(judges) == 1 else "",
        "fired": display.moment(schedule.last_fired_at),
        "outcome": display.visible(schedule.last_outcome) if schedule.last_outcome else "",
        "note": overlap_note(schedule),
        "runs_url": display.list_url(EvaluationRun, schedule__id__exact=schedule.pk),
        "buttons": buttons,
    }
    return render_to_string("admin/evaluation/schedule.html", context)
