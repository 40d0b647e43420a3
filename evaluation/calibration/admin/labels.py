"""Label sets in the console: drawing one, labelling it, and how well people and judge agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Avg, Count, F, FloatField, Q, QuerySet
from django.db.models.functions import Abs, Cast
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.filters import number_in
from agents.kit.console.site import ModelAdmin, NumberInput, Select, TextInput, console_page
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.admin.display import dimension_badge, judged_by
from evaluation.calibration.admin.trust import passport_badge
from evaluation.calibration.agreement import JudgeAgreement
from evaluation.calibration.few_shot import newest_result
from evaluation.calibration.labels import (
    BANDS,
    MOST_DRAWN,
    Key,
    Progress,
    all_done,
    draw_label_set,
    drawn_ids,
    figures_opened,
    has_begun,
    open_figures,
    population_of,
    progress,
    save_label,
    withdraw_label,
)
from evaluation.calibration.models import JudgeCalibration, LabelSet, ScoreLabel
from evaluation.calibration.next_labels import NEXT, draw_next
from evaluation.calibration.passport import passport_of
from evaluation.calibration.shown import blind_judgement
from evaluation.models import COUNTED, Dimension, EvaluationRun, EvaluationScore, procedure_name


class DrawForm(forms.Form):
    """Form of a draw: from which judge's scores, and how many."""

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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer each judge with each procedure it judged by; `judges` has both by the name that is offered."""
        super().__init__(*args, **kwargs)
        fields = ("judge", "method", "hard", "double_check", "few_shot", "simulated")
        judges_and_procedures: set[tuple[str, str]] = set()
        for row in EvaluationRun.objects.filter(swap_test="").order_by("judge").values(*fields).distinct():
            judge = row.pop("judge")
            judges_and_procedures.add((judge, procedure_name(**row)))
        self.judges = {
            f"{judge}, {procedure}": (judge, procedure) for judge, procedure in sorted(judges_and_procedures)
        }
        self.fields["judged_by"].choices = [(name, name) for name in self.judges]  # type: ignore[attr-defined]


PAGES = "admin/calibration/labels/"
LABELLING = "calibration.add_scorelabel"
MOST_DIFFERENCES = 10
CANNOT_TELL = "cannot_tell"
SHOWN_WITH_A_JUDGEMENT = (
    "evaluation_run__agent",
    "evaluation_run__channel",
    "message__channel",
    "message__agent",
    "compared_with__agent",
)


# -- labelling: one judgement at a time, without what the judge made of it until one's own label is stored
@dataclass(frozen=True, slots=True)
class AnnotatorWork:
    """A label set as one annotator works on it: the judgements in their order, and the annotator's own labels by judgement."""

    ids: list[int]
    labels: dict[int, ScoreLabel]

    @property
    def unlabelled(self) -> list[int]:
        return [pk for pk in self.ids if pk not in self.labels]

    def next_after(self, pk: int | None) -> int | None:
        """Return the next judgement without a label after `pk`, from the start again at the end; None when all have one.

        With None, or a judgement that is not in the set, the first one without a label.
        """
        unlabelled = self.unlabelled
        if not unlabelled:
            return None
        if pk in self.ids:
            index = self.ids.index(pk)
            for later in self.ids[index + 1 :]:
                if later not in self.labels:
                    return later
        return unlabelled[0]

    def before(self, pk: int | None) -> int | None:
        """Return the judgement before `pk`; with None the last one. None where there is none before it."""
        index = self.ids.index(pk) if pk in self.ids else len(self.ids)
        return self.ids[index - 1] if index else None


def work_of(label_set: LabelSet, annotator: str) -> AnnotatorWork:
    """Return a label set as an annotator works on it, in two queries."""
    own = ScoreLabel.objects.filter(evaluation_score__label_sets=label_set, annotator=annotator, withdrawn=False)
    return AnnotatorWork(drawn_ids(label_set), {label.evaluation_score_id: label for label in own})


def labelling_context(work: AnnotatorWork, *, item: int | None, saved: int | None) -> dict[str, Any]:
    """Return what the template of the labelling page shows: `item` (the judgement without its judge), progress, and what was just saved.

    `skippable`: there is another judgement without a label. `before`: the one before it, None for the first.

    Args:
        item: The judgement to label, one of the set's; None when everything is labelled.
        saved: The judgement just labelled: only now, and only with a label of one's own, it is shown what the judge gave.
    """
    context: dict[str, Any] = {
        "done": len(work.labels),
        "total": len(work.ids),
        "unknown": sum(label.value is None for label in work.labels.values()),
        "bands": BANDS,
        "cannot_tell": CANNOT_TELL,
        "before": work.before(item),
        "item_id": item,
    }
    if item is not None:
        context["place"] = work.ids.index(item) + 1
        context["label"] = work.labels.get(item)
    score = EvaluationScore.objects.select_related(*SHOWN_WITH_A_JUDGEMENT).filter(pk=item or 0).first()
    if score is not None:
        context["item"] = blind_judgement(score)
        context["skippable"] = any(pk != item for pk in work.unlabelled)
    saved_label = work.labels.get(saved) if saved is not None else None
    if saved_label is not None:
        context |= _revealed_context(saved_label)
    return context


def _revealed_context(label: ScoreLabel) -> dict[str, Any]:
    """Return what the judge gave, beside a label that is stored: how far `apart`, and the judge's reasons.

    `saved` is None where the judgement was deleted meanwhile; no `apart` where the person could not tell.
    """
    judgement = EvaluationScore.objects.filter(pk=label.evaluation_score_id).first()
    context: dict[str, Any] = {"saved": judgement, "given": label}
    if judgement is None:  # deleted meanwhile
        return context
    if label.value is not None and judgement.raw_score is not None:
        context["apart"] = abs(label.value - judgement.raw_score)
    context["reasons"] = "\n\n".join(filter(None, (judgement.reasoning, judgement.justification)))
    return context


# -- what a set says of its judge
def results_context(label_set: LabelSet, *, annotator: str, may_label: bool) -> dict[str, Any]:
    """Return what the template of a label set's page shows; where figures are hidden (`hidden` says why), none of them is in it.

    Args:
        annotator: The visitor. Those who began to label see no figures before the end, and until all are done only their own labels.
        may_label: Whether the visitor may label; then figures are shown before the first label only when they were opened.
    """
    entries = progress([label_set])[label_set.pk]
    own_entry = next((entry for entry in entries if entry.annotator == annotator), None)
    context = {
        "label_set": label_set,
        "drawn": label_set.drawn.count(),
        "drawn_at": parse_datetime(label_set.population["until"]),
        "entries": entries,
        "hidden": _why_hidden(label_set, own_entry, annotator=annotator, may_label=may_label),
        "only_mine": own_entry is not None and not all_done(entries),
    }
    if context["hidden"]:
        return context
    row = JudgeCalibration.objects.filter(
        judge=label_set.judge, procedure=label_set.procedure, dimension=label_set.dimension
    ).first()
    context["row"] = row
    context["few_shot"] = newest_result(
        judge=label_set.judge, procedure=label_set.procedure, dimension=label_set.dimension
    )
    key = Key(label_set.judge, label_set.procedure, label_set.dimension)
    context["passport"] = passport_badge(passport_of(key, row))
    context["differences"] = differences(label_set, [annotator] if context["only_mine"] else None)
    if row is not None and row.figures:
        context["figures"] = JudgeAgreement.model_validate(row.figures)
    return context


def _why_hidden(label_set: LabelSet, own_entry: Progress | None, *, annotator: str, may_label: bool) -> str:
    """Return why figures are hidden from a visitor, so that they do not sway labels: ``not begun``, ``unfinished``, or empty.

    Args:
        own_entry: How far the visitor is; None: has not begun.
    """
    if own_entry is not None:
        return "" if own_entry.done else "unfinished"
    if may_label and not figures_opened(label_set=label_set, annotator=annotator):
        return "not begun"
    return ""


def differences(label_set: LabelSet, annotators: Sequence[str] | None) -> QuerySet[EvaluationScore]:
    """Return the judgements in which people and judge are furthest apart, at least by a point; `MOST_DIFFERENCES` of them at most.

    Each has `people` (the mean of blind labels), `given` (their number) and `apart`.

    Args:
        annotators: Whose labels; None = everybody's.
    """
    used = Q(labels__blind=True, labels__value__isnull=False)
    if annotators is not None:
        used &= Q(labels__annotator__in=annotators)
    return (
        EvaluationScore.objects.filter(label_sets=label_set, raw_score__isnull=False)
        .annotate(people=Avg("labels__value", filter=used), given=Count("labels", filter=used))
        .filter(people__isnull=False)
        .annotate(apart=Abs(F("people") - Cast("raw_score", FloatField())))
        .filter(apart__gte=1)
        .order_by("-apart", "pk")[:MOST_DIFFERENCES]
    )


@admin.register(LabelSet)
class LabelSetAdmin(ModelAdmin[LabelSet]):
    """A set cannot be changed: labels speak for what was drawn. Users who may label may see which sets there are."""

    ordering = ("-pk",)
    actions = None

    people = display.column("labelled", lambda label_set: progress_lines(label_set.entries) or display.EMPTY)
    label_link = display.column("", lambda label_set: display.link(_url("label", label_set), "Label"))

    def has_view_permission(self, request: HttpRequest, obj: LabelSet | None = None) -> bool:
        return super().has_view_permission(request, obj) or request.user.has_perm(LABELLING)

    def has_change_permission(self, request: HttpRequest, obj: LabelSet | None = None) -> bool:
        return False

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = super().get_list_display(request)
        if request.user.has_perm(LABELLING):
            return columns
        return [name for name in columns if name != "label_link"]

    def fill_in(self, rows: list[Any]) -> None:
        """Set how far each annotator is, in two queries for the page."""
        entries = progress(rows)
        for label_set in rows:
            label_set.entries = entries[label_set.pk]

    @admin.display(description="label set", ordering="name")
    def title(self, label_set: LabelSet) -> SafeString:
        return display.lines(display.isolated(label_set.name), display.moment(label_set.created_at))

    @admin.display(description="judge and dimension", ordering="judge")
    def what(self, label_set: LabelSet) -> SafeString:
        return format_html("{} {}", judged_by(label_set), dimension_badge(label_set.dimension))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form of a draw; POST draws and leads to the new label set, or shows the form again with what is wrong.

        Raises:
            PermissionDenied: The user may not draw.
        """
        if not self.has_add_permission(request):
            raise PermissionDenied
        # A link fills it in.
        initial = {name: request.GET[name] for name in DrawForm.base_fields if name in request.GET}
        form = DrawForm(request.POST or None, initial={"name": f"labels {LabelSet.objects.count() + 1}", **initial})
        label_set = None
        if request.method == "POST" and form.is_valid():
            label_set = self._draw(request, form)
        if label_set is not None:
            text = f"{label_set}: {label_set.drawn.count()} of {label_set.population_size:,} judgements drawn."
            self.message_user(request, text, messages.SUCCESS)
            return HttpResponseRedirect(_url("change", label_set))
        return self.page(request, f"{PAGES}draw.html", "Draw judgements to label", form=form)

    def _draw(self, request: HttpRequest, form: DrawForm) -> LabelSet | None:
        """Draw and return a label set; None where that is refused, and the form says why."""
        cleaned = form.cleaned_data
        judge, procedure = form.judges[cleaned["judged_by"]]
        try:
            return draw_label_set(
                name=cleaned["name"],
                judge=judge,
                procedure=procedure,
                dimension=cleaned["dimension"],
                n=cleaned["n"],
                agents=find_agents(cleaned["agents"]) if cleaned["agents"].strip() else None,
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
        """Show what a set says of its judge, as far as the visitor may see it, with a link to label it for those who may."""
        label_set = self._label_set(request, object_id)
        may_label = request.user.has_perm(LABELLING)
        context = results_context(label_set, annotator=user_of(request).get_username(), may_label=may_label)
        label_url = _url("label", label_set) if may_label else ""
        title = f"Label set {label_set}"
        return self.page(
            request,
            f"{PAGES}results.html",
            title,
            label_url=label_url,
            open_url=_url("open", label_set),
            **self._next_context(request, label_set),
            **context,
        )

    def _next_context(self, request: HttpRequest, label_set: LabelSet) -> dict[str, Any]:
        """Return how many judgements the visitor may add to a set and label next, and where; 0 while any of the set is unlabelled."""
        count = 0
        if request.user.has_perm(LABELLING) and self.has_add_permission(request):
            work = work_of(label_set, user_of(request).get_username())
            if not work.unlabelled:
                count = min(NEXT, population_of(label_set).exclude(pk__in=work.ids).count())
        return {"next_count": count, "next_url": _url("next", label_set)}

    @console_page("<int:pk>/next/", LABELLING, post=True)
    def next_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Add the next judgements to a set, once the visitor labelled all there are in it, and lead to the first of them.

        Raises:
            PermissionDenied: The user may not draw.
        """
        label_set = self._label_set(request, pk)
        if not self.has_add_permission(request):
            raise PermissionDenied
        if not work_of(label_set, user_of(request).get_username()).unlabelled:
            try:
                draw_next(label_set=label_set)
            except ValueError as error:
                self.message_user(request, str(error), messages.ERROR)
                return HttpResponseRedirect(_url("change", label_set))
        return HttpResponseRedirect(_url("label", label_set))

    @console_page("<int:pk>/open/", post=True)
    def open_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the figures to a user who may label but has not: later labels are not blind."""
        label_set = self._label_set(request, pk)
        if request.user.has_perm(LABELLING) and not has_begun(label_set, user_of(request).get_username()):
            open_figures(label_set=label_set, user=user_of(request))
        return HttpResponseRedirect(_url("change", label_set))

    @console_page("<int:pk>/label/", LABELLING)
    def label_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show one judgement to label; POST stores a label or withdraws it.

        It is that of ``?item=``, else the next without a label after the one just saved or skipped (``?saved=``, ``?after=``).
        """
        label_set = self._label_set(request, pk)
        if request.method == "POST":
            return self._label(request, label_set)
        work = work_of(label_set, user_of(request).get_username())
        item = number_in(request.GET, "item")
        saved = number_in(request.GET, "saved")
        if item not in work.ids:
            item = work.next_after(saved if saved is not None else number_in(request.GET, "after"))
        context = labelling_context(work, item=item, saved=saved)
        results_url = _url("change", label_set)
        if item is None:
            context |= self._next_context(request, label_set)
        return self.page(request, f"{PAGES}label.html", f"Label: {label_set}", results_url=results_url, **context)

    def _label(self, request: HttpRequest, label_set: LabelSet) -> HttpResponse:
        """Store or withdraw the label that a form sends.

        Then lead to the next judgement, which shows what the judge gave this one; after a withdrawal or a refused value to the same one.
        """
        scores = EvaluationScore.objects.select_related("evaluation_run").filter(label_sets=label_set)
        score = get_object_or_404(scores, pk=number_in(request.POST, "item") or 0)
        user = user_of(request)
        same_item = HttpResponseRedirect(_url("label", label_set, f"?item={score.pk}"))
        if "undo" in request.POST:
            withdraw_label(score=score, annotator=user.get_username())
            return same_item
        try:
            value = _given_value(request.POST.get("value", ""))
            note = request.POST.get("note", "")
            save_label(score=score, annotator=user.get_username(), value=value, note=note, user=user)
        except ValueError as error:
            self.message_user(request, str(error), messages.ERROR)
            return same_item
        return HttpResponseRedirect(_url("label", label_set, f"?saved={score.pk}"))

    def _label_set(self, request: HttpRequest, pk: object) -> LabelSet:
        """Return the label set of that number.

        Raises:
            PermissionDenied: The user may not see label sets.
            Http404: There is none.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        return get_object_or_404(LabelSet, pk=number_in({"pk": str(pk)}, "pk"))


def _given_value(text: str) -> int | None:
    """Return the value of the button that was pressed, 0 to 9; None for cannot tell.

    Raises:
        ValueError: There is no such button.
    """
    if text == CANNOT_TELL:
        return None
    if len(text) == 1 and text in "0123456789":
        return int(text)
    raise ValueError(f"value {text[:20]!r}: allowed: 0 to 9, or cannot tell")


def progress_lines(entries: Sequence[Progress]) -> SafeString:
    return format_html_join(
        "",
        '<div><bdi>{}</bdi> <span class="pl-number">{} of {}</span></div>',
        ((display.visible(entry.annotator), entry.labelled, entry.drawn) for entry in entries),
    )


def _url(page: str, label_set: LabelSet, query: str = "") -> str:
    return reverse(f"admin:calibration_labelset_{page}", args=[label_set.pk]) + query
