"""Label sets in the console: drawing one, labelling it, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Avg, Count, F, FloatField, Q
from django.db.models.functions import Abs, Cast
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.console import display
from agents.console.filters import RecentValuesFilter
from agents.console.site import ModelAdmin, NumberInput, Select, TextInput
from agents.finding import UnknownAgent, find_agents
from evaluation.admin.display import agreement_badge, dimension_badge, judge_badge, procedure_badge
from evaluation.admin.labelling import CANNOT_TELL, desk_of, page_context
from evaluation.calibration.agreement import (
    Calibration,
    Figure,
    Key,
    confusion,
    refresh,
)
from evaluation.calibration.labels import (
    Progress,
    all_done,
    begun,
    figures_opened,
    open_figures,
    progress,
    save_label,
    withdraw_label,
)
from evaluation.calibration.population import MOST_DRAWN, draw_label_set
from evaluation.models import (
    COUNTED,
    Dimension,
    EvaluationRun,
    EvaluationScore,
    JudgeCalibration,
    LabelSet,
    procedure_name,
)


class DrawForm(forms.Form):
    """What to draw."""

    name = forms.CharField(max_length=100, widget=TextInput, help_text="of the label set, unique")
    judged_by = forms.ChoiceField(label="judge", widget=Select, help_text="and how it judged")
    dimension = forms.ChoiceField(
        widget=Select, choices=[(d.value, d.label) for d in Dimension if d.value not in COUNTED]
    )
    n = forms.IntegerField(
        label="how many", min_value=1, max_value=MOST_DRAWN, initial=80, widget=NumberInput,
        help_text="judgements, drawn at random; 50 or more give a prediction-powered mean",
    )  # fmt: skip
    agents = forms.CharField(
        required=False, widget=TextInput, help_text="slugs separated by commas; empty = from everything by that judge"
    )
    seed = forms.IntegerField(
        initial=0, min_value=-(2**63), max_value=2**63 - 1, widget=NumberInput, help_text="the same seed draws the same"
    )

    def __init__(self, *args: Any, judges: Sequence[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.judges = list(judges)
        field = self.fields["judged_by"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 (for the type checker)
        field.choices = [(str(n), f"{judge}, {procedure}") for n, (judge, procedure) in enumerate(self.judges)]


def known_judges() -> list[tuple[str, str]]:
    """Judge and procedure of the evaluations there are."""
    fields = ("judge", "method", "hard", "double_check", "simulated")
    rows = EvaluationRun.objects.order_by("judge").values_list(*fields).distinct()
    named = [
        (judge, procedure_name(method=m, hard=hard, double_check=double, simulated=simulated))
        for judge, m, hard, double, simulated in rows
    ]
    return sorted(set(named))


MOST_DIFFERENCES = 10
SHADES = 4


def results_context(label_set: LabelSet, *, annotator: str, may_label: bool) -> dict[str, Any]:
    """What the template shows.

    Args:
        annotator: The visitor. Those who began to label see no figures before the end, and until all are done only their own labels.
        may_label: Whether the visitor may label; then figures are shown before the first label only when they were opened.
    """
    entries = progress([label_set])[label_set.pk]
    mine = next((entry for entry in entries if entry.annotator == annotator), None)
    closed = may_label and mine is None and not figures_opened(label_set=label_set, annotator=annotator)
    hidden = "not begun" if closed else "unfinished" if mine is not None and not mine.done else ""
    only_mine = mine is not None and not all_done(entries)
    return {
        "label_set": label_set,
        "judge": judge_badge(label_set.judge),
        "procedure": procedure_badge(label_set.procedure),
        "dimension": dimension_badge(label_set.dimension),
        "drawn": f"{label_set.drawn.count():,} of {label_set.population_size:,}",
        "drawn_at": display.moment(parse_datetime(label_set.population["until"])),
        "runs": len(label_set.population["runs"]),
        "agents": ", ".join(label_set.population.get("agents", [])),
        "entries": entries,
        "hidden": hidden,
        "only_mine": only_mine,
        **({} if hidden else _figures(label_set, [annotator] if only_mine else None)),
    }


def _figures(label_set: LabelSet, annotators: Sequence[str] | None) -> dict[str, Any]:
    row = JudgeCalibration.objects.filter(
        judge=label_set.judge, procedure=label_set.procedure, dimension=label_set.dimension
    ).first()
    figures = Calibration.model_validate(row.figures) if row and row.figures else None
    return {
        "agreement": agreement_badge(row, label_set.dimension),
        "stale": row is not None and row.is_stale,
        "computed": display.moment(row.computed_at) if row else "",
        "figures": [_figure(*figure) for figure in figures.rows()] if figures else [],
        "notes": figures.notes() if figures else [],
        "needed": figures.needed if figures else [],
        "confusion": _confusion(confusion(label_set, annotators=annotators)),
        "differences": _differences(label_set, annotators),
    }


def _figure(name: str, meaning: str, figure: Figure) -> dict[str, Any]:
    value = display.EMPTY if figure.value is None else figure.text
    shown = {"name": display.visible(name), "meaning": meaning, "value": value}
    return {**shown, "interval": figure.interval_text, "n": f"{figure.n:,}"}


def _confusion(table: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Rows from 9 down to 0, as an axis goes; a cell's shade grows with its share of the fullest cell."""
    most = max(map(max, table))
    if not most:
        return []
    return [
        {
            "value": value,
            "cells": [
                {
                    "count": count or "",
                    "shade": -(-SHADES * count // most),
                    "same": value == raw,
                    "title": f"people {value}, judge {raw}: {count}",
                }
                for raw, count in enumerate(table[value])
            ],
        }
        for value in reversed(range(len(table)))
    ]


def _differences(label_set: LabelSet, annotators: Sequence[str] | None) -> list[dict[str, Any]]:
    """The judgements in which people and judge are furthest apart."""
    counted = Q(labels__blind=True, labels__value__isnull=False)
    if annotators is not None:
        counted &= Q(labels__annotator__in=annotators)
    rows = (
        EvaluationScore.objects.filter(label_sets=label_set, raw_score__isnull=False)
        .annotate(people=Avg("labels__value", filter=counted), given=Count("labels", filter=counted))
        .filter(people__isnull=False)
        .annotate(apart=Abs(F("people") - Cast("raw_score", FloatField())))
        .filter(apart__gte=1)
        .order_by("-apart", "pk")[:MOST_DIFFERENCES]
    )
    return [
        {
            "page": display.page_of(row, row.proposition_id),
            "claim": display.visible(row.claim),
            "said": display.visible(display.shortened(row.context_snippet, 160)),
            "people": f"{row.people:g}" if row.given == 1 else f"{row.people:.1f}",
            "judge": row.raw_score,
        }
        for row in rows
    ]


def label_url(label_set: LabelSet, query: str = "") -> str:
    return reverse("admin:evaluation_labelset_label", args=[label_set.pk]) + query


PAGES = "admin/evaluation/labels/"
LABELLING = "evaluation.add_scorelabel"


@admin.register(LabelSet)
class LabelSetAdmin(ModelAdmin[LabelSet]):
    """A set cannot be changed: labels speak for what was drawn. Whoever may label may see which sets there are."""

    list_display = ("title", "what", "people", "label_link")
    list_display_links = ("title",)
    list_filter = (("dimension", RecentValuesFilter), ("judge", RecentValuesFilter))
    ordering = ("-pk",)
    search_fields = ("name",)
    actions = None

    def has_view_permission(self, request: HttpRequest, obj: LabelSet | None = None) -> bool:
        return super().has_view_permission(request, obj) or request.user.has_perm(LABELLING)

    def has_change_permission(self, request: HttpRequest, obj: LabelSet | None = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        views = (("label", self.label_view), ("compute", self.compute_view), ("open", self.open_view))
        own = [
            path(f"<int:pk>/{name}/", self.admin_site.admin_view(view), name=f"evaluation_labelset_{name}")
            for name, view in views
        ]
        return [*own, *super().get_urls()]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list, with how far each annotator is, in two queries for the whole page."""
        page: Any = super().get_changelist_instance(request)
        page.result_list = list(page.result_list)
        entries = progress(page.result_list)
        may_label = request.user.has_perm(LABELLING)
        for label_set in page.result_list:
            label_set.entries, label_set.may_label = entries[label_set.pk], may_label
        return page

    @admin.display(description="label set", ordering="name")
    def title(self, label_set: LabelSet) -> SafeString:
        return display.lines(display.isolated(label_set.name), display.moment(label_set.created_at))

    @admin.display(description="judge and dimension", ordering="judge")
    def what(self, label_set: LabelSet) -> SafeString:
        judge = format_html("{} {}", judge_badge(label_set.judge), procedure_badge(label_set.procedure))
        return format_html("{} {}", judge, dimension_badge(label_set.dimension))

    people = display.column("labelled", lambda label_set: progress_lines(label_set.entries) or display.EMPTY)

    @admin.display(description="")
    def label_link(self, label_set: Any) -> SafeString:
        return display.link(label_url(label_set), "Label") if label_set.may_label else SafeString("")

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A form for the draw."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = DrawForm(
            request.POST or None, judges=known_judges(), initial={"name": f"labels {LabelSet.objects.count() + 1}"}
        )
        if request.method == "POST" and form.is_valid() and (label_set := self._draw(request, form)) is not None:
            text = f"{label_set}: {label_set.drawn.count()} of {label_set.population_size:,} judgements drawn."
            self.message_user(request, text, messages.SUCCESS)
            return HttpResponseRedirect(_page_url(label_set))
        return self.page(request, f"{PAGES}draw.html", "Draw judgements to label", form=form)

    def _draw(self, request: HttpRequest, form: DrawForm) -> LabelSet | None:
        wanted = form.cleaned_data
        judge, procedure = form.judges[int(wanted["judged_by"])]
        try:
            return draw_label_set(
                name=wanted["name"],
                judge=judge,
                procedure=procedure,
                dimension=wanted["dimension"],
                n=wanted["n"],
                agents=find_agents(wanted["agents"]) if wanted["agents"].strip() else None,
                seed=wanted["seed"],
                user=user_of(request),
            )
        except UnknownAgent as error:
            form.add_error("agents", str(error))
        except ValueError as error:
            form.add_error(None, str(error))
        return None

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What came of a set."""
        label_set = self._found(request, object_id)
        context = results_context(
            label_set,
            annotator=user_of(request).get_username(),
            may_label=request.user.has_perm(LABELLING),
        )
        return self.page(
            request,
            f"{PAGES}results.html",
            f"Label set {label_set}",
            label_url=label_url(label_set) if request.user.has_perm(LABELLING) else "",
            compute_url=reverse("admin:evaluation_labelset_compute", args=[label_set.pk]),
            open_url=reverse("admin:evaluation_labelset_open", args=[label_set.pk]),
            **context,
        )

    def compute_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Compute the figures now, without waiting for a worker (POST)."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        label_set = self._found(request, str(pk))
        refresh(Key(label_set.judge, label_set.procedure, label_set.dimension))
        return HttpResponseRedirect(_page_url(label_set))

    def open_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the figures to a user who may label but has not: later labels are not blind (POST)."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        label_set = self._found(request, str(pk))
        if request.user.has_perm(LABELLING) and not begun(label_set, user_of(request).get_username()):
            open_figures(label_set=label_set, user=user_of(request))
        return HttpResponseRedirect(_page_url(label_set))

    def label_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """One judgement to label; POST stores a label or takes one back."""
        if not request.user.has_perm(LABELLING):
            raise PermissionDenied
        label_set = self._found(request, str(pk))
        if request.method == "POST":
            return self._label(request, label_set)
        desk = desk_of(label_set, user_of(request).get_username())
        item, saved, after = (_number(request.GET.get(name, "")) for name in ("item", "saved", "after"))
        if item not in desk.ids:
            item = desk.next_after(saved if saved is not None else after)
        context = page_context(desk, item=item, saved=saved)
        return self.page(
            request, f"{PAGES}label.html", f"Label: {label_set}", results_url=_page_url(label_set), **context
        )

    def _label(self, request: HttpRequest, label_set: LabelSet) -> HttpResponse:
        pk = _number(request.POST.get("item", "")) or 0
        score = EvaluationScore.objects.select_related("evaluation_run").filter(pk=pk, label_sets=label_set).first()
        if score is None:
            raise Http404("There is no such judgement in this label set.")
        user = user_of(request)
        if "undo" in request.POST:
            withdraw_label(score=score, annotator=user.get_username())
            return HttpResponseRedirect(label_url(label_set, f"?item={score.pk}"))
        given = request.POST.get("value", "")
        try:
            value = None if given == CANNOT_TELL else _value(given)
            save_label(
                score=score, annotator=user.get_username(), value=value, note=request.POST.get("note", ""), user=user
            )
        except ValueError as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(label_url(label_set, f"?item={score.pk}"))
        return HttpResponseRedirect(label_url(label_set, f"?saved={score.pk}"))

    def _found(self, request: HttpRequest, pk: str) -> LabelSet:
        if not self.has_view_permission(request):
            raise PermissionDenied
        number = _number(pk)
        label_set = LabelSet.objects.filter(pk=number).first() if number is not None else None
        if label_set is None:
            raise Http404(f"There is no label set {pk}.")
        return label_set


def progress_lines(entries: Sequence[Progress]) -> SafeString:
    return format_html_join(
        "",
        '<div><bdi>{}</bdi> <span class="pl-number">{} of {}</span></div>',
        ((display.visible(entry.annotator), entry.labelled, entry.drawn) for entry in entries),
    )


def _page_url(label_set: LabelSet) -> str:
    return reverse("admin:evaluation_labelset_change", args=[label_set.pk])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _value(text: str) -> int:
    if len(text) == 1 and text in "0123456789":
        return int(text)
    raise ValueError(f"value {text[:20]!r}: allowed: 0 to 9, or cannot tell")
