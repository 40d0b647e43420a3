"""Interventions that operators write, and the log of every one that was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.logs import READING, LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import JSONText, ModelAdmin, Select, extend
from agents.kit.models import LLMCall
from agents.kit.templatetags.display import register as templates
from agents.models import Agent, Run
from correction.interventions.builtin import BUILT_IN, CLAIM_VARIABLES, problems_of, unstorable
from correction.interventions.counts import (
    NEWEST,
    Counts,
    counts_of,
    names_in_use,
)
from correction.interventions.functions import known_functions
from correction.interventions.models import Intervention, InterventionLog
from correction.interventions.nudges import VARIABLES, NudgeType
from evaluation.admin.display import judge_badge

MOST_COUNTED = 20  # interventions without a row
COUNTED_IN_LIST = 200  # evaluations of each of them

if TYPE_CHECKING:
    InterventionModelForm = forms.ModelForm[Intervention]
else:
    InterventionModelForm = forms.ModelForm

NUDGES_SHOWN = 5  # on an agent's page
MOST_LOOKED_AT = 500  # newest rows of the agent's that are searched for them
MOST_OF_A_TURN = 50  # evaluations on the page of a turn


class ParametersField(JSONText):
    """JSON that every database can store: Python's reader also takes NaN and halves of characters."""

    def to_python(self, value: Any) -> Any:
        """Read JSON; refuse what no database can store."""
        parsed = super().to_python(value)
        problem = "" if parsed is None else unstorable(parsed)
        if problem:
            raise forms.ValidationError(problem)
        return parsed

    def prepare_value(self, value: Any) -> Any:
        text: Any = super().prepare_value(value)
        if isinstance(text, str):  # half a character cannot be sent to a browser
            return text.encode("utf-8", "backslashreplace").decode()
        return text


class InterventionForm(InterventionModelForm):
    """Says field by field whether function, parameters, variables and nudge can be used."""

    class Meta:
        model = Intervention
        fields = "__all__"
        field_classes: ClassVar = {"function_parameters": ParametersField}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("function", [(name, name.replace("_", " ")) for name in sorted(known_functions())], "no function")
        self._offer("nudge_type", NudgeType.choices, "no kind: the text below is the nudge")

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # Django's place for what needs the row
        for name, problem in problems_of(self.instance).items():
            self.add_error(name, problem)

    def _offer(self, name: str, choices: list[Any], nothing: str) -> None:
        """Let a person choose instead of type. A stored name that is not known any more stays, and is refused with a reason.

        Args:
            name: Of the field, which the user may only be allowed to read: then it stays as it is.
            choices: Each with its label.
            nothing: The label of the empty choice.
        """
        if name not in self.fields:  # read-only for this user
            return
        field = self.fields[name]
        offered = [("", nothing), *choices]
        stored = str(self.initial.get(name) or "")
        if stored and stored not in {value for value, _ in choices}:
            offered.append((stored, f"{stored} (not known)"))
        self.fields[name] = forms.ChoiceField(
            choices=offered,
            required=False,
            label=field.label,
            help_text=field.help_text,
            widget=Select,
        )


@templates.filter
def fired_badge(fired: bool) -> SafeString:
    """Show whether it fired; also for templates that load "display"."""
    return display.badge("fired", "good") if fired else display.badge("did not fire")


def functions_help() -> SafeString:
    """Describe every function with its parameters."""
    items = []
    for name, function in sorted(known_functions().items()):
        items.append((name, function.doc, _parameters(function.describe())))
    return format_html(
        "<p>Functions cost nothing and are looked at first; the claims ask a judge only if the function holds. "
        'Claims may use {}.</p><details class="pl-folded"><summary>Functions and their parameters</summary>'
        '<dl class="pl-functions">{}</dl></details>',
        _variables(CLAIM_VARIABLES), format_html_join("", "<dt><code>{}</code></dt><dd>{} {}</dd>", items),
    )  # fmt: skip


def nudges_help() -> SafeString:
    """Say what a nudge may be."""
    return format_html(
        "<p>Give a text, or a kind: then the agent gets its own text of that kind. A text may use {}.</p>",
        _variables(VARIABLES),
    )


def _parameters(described: dict[str, str]) -> SafeString:
    return format_html_join("", '<div class="pl-subtle"><code>{}</code> {}</div>', described.items())


def _variables(names: tuple[str, ...]) -> SafeString:
    return format_html_join(", ", "<code>{}</code>", (("{{" + name + "}}",) for name in names))


def preconditions_table(logged: Any) -> SafeString:
    """Return a table with one line per precondition, as `PreconditionResult` logs it."""
    entries = logged if isinstance(logged, list) else []
    rows = [_precondition_row(entry) for entry in entries if isinstance(entry, dict)]
    heads = ("Kind", "Precondition", "Held", "Measured", "Why")
    return table(heads, rows, label="Preconditions") or display.EMPTY


def _precondition_row(entry: dict[str, Any]) -> tuple[object, ...]:
    """Return the line of one logged precondition: kind, text, whether it held, what was measured, and the reasoning with its judge."""
    measured = []
    if entry.get("score") is not None:
        measured.append(f"{entry['score']:g}")
    if entry.get("threshold") is not None:
        measured.append(f"threshold {entry['threshold']}")
    judge = judge_badge(entry["judge"]) if entry.get("judge") else ""
    return (
        display.visible(entry.get("kind", "")),
        display.folded(str(entry.get("text") or ""), 80),
        _held_badge(entry.get("held")),
        " · ".join(measured) or "–",
        format_html("{} {}", display.folded(str(entry.get("reasoning") or ""), 90), judge),
    )


def _held_badge(held: bool | None) -> SafeString:
    """Return the badge of whether a precondition held; None: it was not asked, or not judged."""
    if held is None:
        return display.badge("not asked", "plain", "not asked, or not judged")
    if held:
        return display.badge("holds", "good")
    return display.badge("does not hold", "warning")


def counts_table(names: Sequence[str], *, may_read: bool, newest: int = NEWEST) -> SafeString:
    """Return a table of how often each of these was evaluated, got past its functions, asked a judge and fired; empty without names.

    The reason, which may quote messages, is for users who may read these (`may_read`).
    """
    if not names:
        return SafeString("")
    rows = [_counts_row(counts_of(name, newest), may_read=may_read) for name in names]
    heads = ("Intervention", "Evaluated", "Functions held", "Judge asked", "Fired", "Why not, last time")
    return format_html('<section class="pl-panel">{}</section>', table(heads, rows, label="How often they fire"))


def _counts_row(counts: Counts, *, may_read: bool) -> tuple[object, ...]:
    """Return the line of one intervention: how often it was evaluated, got past its functions, asked a judge and fired, and why not."""
    evaluated = f"{counts.evaluated:,}"
    if counts.more:
        evaluated += ", the newest"
    asked_text = f"{counts.asked:,}"
    if counts.unjudged:
        asked_text += f", {counts.unjudged:,} could not be judged"
    fired: object = display.EMPTY
    if counts.fired:
        url = display.list_url(InterventionLog, name=counts.name, fired__exact=1)
        fired = display.lines(display.link(url, f"{counts.fired:,}"), display.moment(counts.last_fired))
    return (
        display.link(display.list_url(InterventionLog, name=counts.name), counts.name),
        evaluated,
        f"{counts.held:,}",
        asked_text,
        fired,
        display.folded(counts.why, 90) if counts.why and may_read else display.EMPTY,
    )


@admin.register(Intervention)
class InterventionAdmin(ModelAdmin[Intervention]):
    form = InterventionForm
    autocomplete_fields = ("agents",)

    def get_fieldsets(self, request: HttpRequest, obj: Intervention | None = None) -> Any:
        """Group the fields: what it is, where and how often, preconditions, nudge."""
        conditions = ("function", "function_parameters", "textual_claim", "proposition_claim", "proposition_threshold")
        return (
            (None, {"fields": ("slug", "description", "is_enabled")}),
            ("Where and how often", {"fields": ("agents", "dm_allowed", "window", "cooldown_messages")}),
            ("Preconditions: all that are given must hold", {"fields": conditions, "description": functions_help()}),
            ("Nudge: what the agent is then shown", {"fields": ("nudge_type", "nudge"), "description": nudges_help()}),
        )

    list_before_template = "admin/list_panels.html"

    def get_panels(self, request: HttpRequest, obj: Intervention) -> list[SafeString]:
        """Add how often it fires, from the log, for those who may read that."""
        panels = super().get_panels(request, obj)
        if request.user.has_perm("interventions.view_interventionlog"):
            return [*panels, counts_table([obj.slug], may_read=request.user.has_perm(READING))]
        return panels

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Show the rows, below how often those fire that have none: built-in interventions and those of batches."""
        panels = []
        if request.user.has_perm("interventions.view_interventionlog"):
            names = list(dict.fromkeys((*BUILT_IN, *names_in_use())))
            of_rows = set(Intervention.objects.filter(slug__in=names).values_list("slug", flat=True))
            without_row = [name for name in names if name not in of_rows]
            may_read = request.user.has_perm(READING)
            panels = [counts_table(without_row[:MOST_COUNTED], may_read=may_read, newest=COUNTED_IN_LIST)]
        return super().changelist_view(request, {**(extra_context or {}), "panels": panels})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Intervention]:
        return super().get_queryset(request).prefetch_related("agents")

    @admin.display(description="for")
    def reach(self, row: Intervention) -> SafeString:
        names = [(display.isolated(agent.display_name),) for agent in row.agents.all()]
        who = format_html_join(", ", "{}", names) if names else "every agent"
        return display.lines(who, "also in direct messages" if row.dm_allowed else "")


@admin.register(InterventionLog)
class InterventionLogAdmin(LogAdmin[InterventionLog]):
    ordering = ("-created_at", "-pk")  # an index has it, also below a range of days

    fired_mark = display.column("fired", lambda log: fired_badge(log.fired), ordering="fired")
    reason = display.column("why", lambda log: display.EMPTY if log.unread else display.folded(log.why, 90))
    conditions = display.column(
        "preconditions", lambda log: display.EMPTY if log.unread else preconditions_table(log.preconditions)
    )

    @admin.display(description="written down in")
    def intervention_link(self, log: InterventionLog) -> SafeString:
        if log.intervention is not None:
            return display.page_of(log.intervention)
        return SafeString("built in" if log.name in BUILT_IN else "an intervention that was deleted")

    @admin.display(description="model calls")
    def calls(self, log: InterventionLog) -> SafeString:
        return display.link(display.list_url(LLMCall, work_id=log.work_id), "the calls it made")


def nudges_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """Show the last nudges that the agent was given."""
    newest = InterventionLog.objects.filter(agent=agent).order_by("-created_at", "-pk").values_list("pk", flat=True)
    fired = InterventionLog.objects.filter(pk__in=list(newest[:MOST_LOOKED_AT]), fired=True).select_related("channel")
    all_url = display.list_url(InterventionLog, agent__id__exact=agent.pk)
    context = {"logs": list(fired.order_by("-pk")[:NUDGES_SHOWN]), "all_url": all_url}
    return SafeString(render_to_string("admin/interventions/agent_nudges.html", context, request))


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """Show on the page of a turn the interventions that were evaluated before it."""
    logs = InterventionLog.objects.filter(run=run).defer("preconditions").order_by("pk")[:MOST_OF_A_TURN]
    context = {"logs": logs, "may_read": request.user.has_perm(READING)}
    return SafeString(render_to_string("admin/interventions/run.html", context, request))


extend(Run, "interventions.view_interventionlog", panels=(run_panel,))
extend(
    Agent,
    "interventions.view_interventionlog",
    order=1,
    tab="gate",
    sections=(nudges_panel,),
    anchors=(("nudges", "Nudges"),),
)
