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
from agents.kit.console.logs import LogAdmin
from agents.kit.console.panels import table
from agents.kit.console.site import JSONText, ModelAdmin, Select, extend
from agents.kit.models import LLMCall
from agents.kit.templatetags.display import register as templates
from agents.models import Agent, Run
from correction.interventions.builtin import BUILT_IN, CLAIM_VARIABLES, problems_of, unstorable
from correction.interventions.counts import (
    NEWEST,
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

SHOWN = 5  # nudges on an agent's page
MOST_LOOKED_AT = 500  # newest rows of the agent's that are searched for them
MOST_OF_A_TURN = 50


class ParametersField(JSONText):
    """JSON that every database can store: Python's reader also takes NaN and halves of characters."""

    def to_python(self, value: Any) -> Any:
        parsed = super().to_python(value)
        if parsed is not None and (problem := unstorable(parsed)):
            raise forms.ValidationError(problem)
        return parsed

    def prepare_value(self, value: Any) -> Any:
        shown = super().prepare_value(value)
        return shown.encode("utf-8", "backslashreplace").decode() if isinstance(shown, str) else shown


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
        """Let a person choose instead of type. A stored name that is not known any more stays, and is refused with a reason."""
        if name not in self.fields:  # read-only for this user
            return
        field, stored = self.fields[name], str(self.initial.get(name) or "")
        gone = [(stored, f"{stored} (not known)")] if stored and stored not in {value for value, _ in choices} else []
        self.fields[name] = forms.ChoiceField(
            choices=[("", nothing), *choices, *gone],
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
    """Every function with its parameters."""
    rows = format_html_join(
        "",
        "<dt><code>{}</code></dt><dd>{} {}</dd>",
        (
            (function.name, function.doc, _parameters(function.describe()))
            for _, function in sorted(known_functions().items())
        ),
    )
    return format_html(
        "<p>Functions cost nothing and are looked at first; the claims ask a judge only if the function holds. "
        'Claims may use {}.</p><details class="pl-folded"><summary>Functions and their parameters</summary>'
        '<dl class="pl-functions">{}</dl></details>',
        _variables(CLAIM_VARIABLES), rows,
    )  # fmt: skip


def nudges_help() -> SafeString:
    return format_html(
        "<p>Give a text, or a kind: then the agent gets its own text of that kind. A text may use {}.</p>",
        _variables(VARIABLES),
    )


def _parameters(described: dict[str, str]) -> SafeString:
    return format_html_join("", '<div class="pl-subtle"><code>{}</code> {}</div>', described.items())


def _variables(names: tuple[str, ...]) -> SafeString:
    return format_html_join(", ", "<code>{}</code>", (("{{" + name + "}}",) for name in names))


def preconditions_table(logged: Any) -> SafeString:
    """One line per precondition, as `PreconditionResult` logs it."""
    rows = []
    for entry in filter(lambda entry: isinstance(entry, dict), logged if isinstance(logged, list) else ()):
        held, score, judge = entry.get("held"), entry.get("score"), entry.get("judge")
        tone: display.Tone = "good" if held else "warning"
        badge = display.badge("holds" if held else "does not hold", tone)
        if held is None:
            badge = display.badge("not asked", "plain", "not asked, or not judged")
        measured = [] if score is None else [f"{score:g}"]
        measured += [] if entry.get("threshold") is None else [f"threshold {entry['threshold']}"]
        why = format_html(
            "{} {}", display.folded(str(entry.get("reasoning") or ""), 90), judge_badge(judge) if judge else ""
        )
        text = display.folded(str(entry.get("text") or ""), 80)
        rows.append((display.visible(entry.get("kind", "")), text, badge, " · ".join(measured) or "–", why))
    heads = ("Kind", "Precondition", "Held", "Measured", "Why")
    return table(heads, rows, label="Preconditions") or display.EMPTY


def counts_table(names: Sequence[str], *, newest: int = NEWEST) -> SafeString:
    """How often each of these was evaluated, got past its functions, was asked of a judge and fired, and why not the last time."""
    rows = []
    for one in (counts_of(name, newest) for name in names):
        evaluated = f"{one.evaluated:,}{', the newest' if one.more else ''}"
        asked = f"{one.asked:,}" + (f", {one.unjudged:,} could not be judged" if one.unjudged else "")
        fired: object = display.EMPTY
        if one.fired:
            url = display.list_url(InterventionLog, name=one.name, fired__exact=1)
            fired = display.lines(display.link(url, f"{one.fired:,}"), display.moment(one.last_fired))
        log = display.link(display.list_url(InterventionLog, name=one.name), one.name)
        rows.append(
            (log, evaluated, f"{one.held:,}", asked, fired, display.folded(one.why, 90) if one.why else display.EMPTY)
        )
    heads = ("Intervention", "Evaluated", "Functions held", "Judge asked", "Fired", "Why not, last time")
    return (
        format_html('<section class="pl-panel">{}</section>', table(heads, rows, label="How often they fire"))
        if rows
        else SafeString("")
    )


@admin.register(Intervention)
class InterventionAdmin(ModelAdmin[Intervention]):
    form = InterventionForm
    autocomplete_fields = ("agents",)

    def get_fieldsets(self, request: HttpRequest, obj: Intervention | None = None) -> Any:
        conditions = ("function", "function_parameters", "textual_claim", "proposition_claim", "proposition_threshold")
        return (
            (None, {"fields": ("slug", "description", "is_enabled")}),
            ("Where and how often", {"fields": ("agents", "dm_allowed", "window", "cooldown_messages")}),
            ("Preconditions: all that are given must hold", {"fields": conditions, "description": functions_help()}),
            ("Nudge: what the agent is then shown", {"fields": ("nudge_type", "nudge"), "description": nudges_help()}),
        )

    list_before_template = "admin/list_panels.html"

    def get_panels(self, request: HttpRequest, obj: Intervention) -> list[SafeString]:
        """How often it fires, from the log, for those who may read that."""
        shown = (
            counts_table([obj.slug]) if request.user.has_perm("interventions.view_interventionlog") else SafeString("")
        )
        return [*super().get_panels(request, obj), shown]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The rows, below how often those fire that have none: built-in interventions and those of batches."""
        panels = []
        if request.user.has_perm("interventions.view_interventionlog"):
            names = list(dict.fromkeys((*BUILT_IN, *names_in_use())))
            rows = set(Intervention.objects.filter(slug__in=names).values_list("slug", flat=True))
            panels = [counts_table([name for name in names if name not in rows][:MOST_COUNTED], newest=COUNTED_IN_LIST)]
        return super().changelist_view(request, {**(extra_context or {}), "panels": panels})

    def get_queryset(self, request: HttpRequest) -> QuerySet[Intervention]:
        return super().get_queryset(request).prefetch_related("agents")

    @admin.display(description="for")
    def reach(self, row: Intervention) -> SafeString:
        names = [display.isolated(agent.display_name) for agent in row.agents.all()]
        who = format_html(", ".join(["{}"] * len(names)), *names) if names else "every agent"
        return display.lines(who, "also in direct messages" if row.dm_allowed else "")


@admin.register(InterventionLog)
class InterventionLogAdmin(LogAdmin[InterventionLog]):
    ordering = ("-created_at", "-pk")  # an index has it, also below a range of days

    fired_mark = display.column("fired", lambda log: fired_badge(log.fired), ordering="fired")
    conditions = display.column("preconditions", lambda log: preconditions_table(log.preconditions))

    @admin.display(description="written down in")
    def intervention_link(self, log: InterventionLog) -> SafeString:
        if log.intervention is not None:
            return display.page_of(log.intervention)
        return SafeString("built in" if log.name in BUILT_IN else "an intervention that was deleted")

    @admin.display(description="model calls")
    def calls(self, log: InterventionLog) -> SafeString:
        return display.link(display.list_url(LLMCall, work_id=log.work_id), "the calls it made")


def nudges_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """The last nudges that it was shown."""
    newest = InterventionLog.objects.filter(agent=agent).order_by("-created_at", "-pk").values_list("pk", flat=True)
    fired = InterventionLog.objects.filter(pk__in=list(newest[:MOST_LOOKED_AT]), fired=True).select_related("channel")
    all_url = display.list_url(InterventionLog, agent__id__exact=agent.pk)
    context = {"logs": list(fired.order_by("-pk")[:SHOWN]), "all_url": all_url}
    return SafeString(render_to_string("admin/interventions/agent_nudges.html", context, request))


def run_panel(request: HttpRequest, run: Run) -> SafeString:
    """For the page of a turn: the interventions that were looked at before it."""
    logs = InterventionLog.objects.filter(run=run).defer("preconditions").order_by("pk")[:MOST_OF_A_TURN]
    return SafeString(render_to_string("admin/interventions/run.html", {"logs": logs}, request))


extend(Run, "interventions.view_interventionlog", panels=(run_panel,))
extend(Agent, "interventions.view_interventionlog", order=1, sections=(nudges_panel,), anchors=(("nudges", "Nudges"),))
