"""An agent's prompt as it would be sent now, and the button *Run a turn*."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.display import Tone
from agents.console.site import GrowingTextarea, ModelAdmin, Select
from agents.llm import ledger
from agents.llm.endpoints import model_of, problem_of, provider_of
from agents.models import Agent, Channel, Run
from agents.turn.pipeline import StageFailed
from agents.turn.prompt import PROMPT_CHARACTERS, PromptPreview, preview_prompt
from agents.turn.send_message import TurnRefused, start_turn
from agents.turn.tools import tool_definitions

MOST_CHANNELS = 100  # to choose from
NEEDED = ("agents.view_agent", "agents.view_message")
OWN = ("persona", "instructions", "memory")  # parts of every prompt; all others were added by a stage of the pipeline
TRACE_TONES: dict[str, Tone] = {"ran": "good", "skipped": "plain", "failed": "bad"}


class PromptPages(ModelAdmin[Agent]):
    """The page of an agent's prompt."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.prompt_view)
        return [path("<int:pk>/prompt/", view, name="agents_agent_prompt"), *super().get_urls()]

    def prompt_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the prompt. No model is asked and nothing is written."""
        if not request.user.has_perms(NEEDED):
            raise PermissionDenied
        agent = the_agent(pk)
        channels = channels_of(agent)
        channel, preview = chosen_channel(request, channels), {}
        if channel is not None:
            try:
                preview = _preview(preview_prompt(agent=agent, channel=channel))
            except StageFailed as error:
                preview = {"problem": display.visible(error)}
        return self.page(
            request,
            "admin/agents/agent/prompt.html",
            f"What {display.marked(agent.display_name)} would read",
            agent=display.agent_chip(agent),
            agent_url=reverse("admin:agents_agent_change", args=[agent.pk]),
            slug=agent.slug,
            model=display.visible(agent.model_id or model_of("actor")),
            channels=[(one.slug, display.marked(one)) for one in channels],
            channel=channel,
            tools=[(tool.name, display.block(tool.description)) for tool in tool_definitions()],
            **preview,
        )


def the_agent(pk: int) -> Agent:
    agent = Agent.objects.filter(pk=pk).first()
    if agent is None:
        raise Http404(f"There is no agent {pk}.")
    return agent


def channels_of(agent: Agent) -> list[Channel]:
    """The channels it may speak in: those people speak in first, the newest first."""
    joined = Channel.objects.filter(memberships__agent=agent).order_by("synthetic", "-pk")
    return list(joined[:MOST_CHANNELS])


def chosen_channel(request: HttpRequest, channels: Sequence[Channel]) -> Channel | None:
    """The one the URL names, else the first."""
    wanted = request.POST.get("channel") or request.GET.get("channel", "")
    return next((channel for channel in channels if channel.slug == wanted), channels[0] if channels else None)


def _preview(found: PromptPreview) -> dict[str, Any]:
    return {
        "sections": [
            {
                "heading": display.visible(section.heading),
                "added": added_by(section.stage),
                "size": f"{len(section.body):,}",
                "body": display.block(section.body),
                "is_open": section.stage not in OWN,
            }
            for section in found.sections
        ],
        "first_message": display.block(found.user),
        "first_size": f"{len(found.user):,}",
        "said": len(found.transcript),
        "size": f"{len(found.system) + len(found.user):,}",
        "draft": display.block(found.draft.text) if found.draft is not None else "",
        "trace": [
            {
                "stage": display.visible(entry.stage),
                "status": display.badge(entry.status, TRACE_TONES.get(entry.status, "plain")),
                "why": display.visible(entry.why),
                "ms": f"{entry.ms:.0f}",
            }
            for entry in found.trace
        ],
    }


def added_by(stage: str) -> SafeString:
    """Who added a part of a prompt: a stage of the pipeline, if it is not in every prompt."""
    if stage in OWN:
        return display.badge("in every prompt")
    return display.badge(f"stage {stage or 'unnamed'}", "accent", "added by this stage of the turn's pipeline")


PERMISSION = "agents.add_run"
CALLS = 2  # one says something, the next ends the turn: an assumption, for an agent may use other tools, too
REPLY_TOKENS = 120  # of each answer: an assumption, too
CHARACTERS_PER_TOKEN = 4


class TurnNeeds(NamedTuple):
    """What a turn would need if it goes as most do."""

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    is_free: bool


class TurnForm(forms.Form):
    """Where the agent acts, and what an operator asks of this turn."""

    channel = forms.ChoiceField(widget=Select, help_text="what it says there is really said; its corrections apply")
    prompt = forms.CharField(
        required=False,
        max_length=PROMPT_CHARACTERS,
        widget=GrowingTextarea,
        label="What you ask of this turn",
        help_text="shown to the agent, not said in the channel; empty: it decides by itself what to do",
    )

    def __init__(self, *args: Any, channels: Sequence[Channel], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["channel"].choices = [(one.slug, display.marked(one)) for one in channels]  # type: ignore[attr-defined]


class TurnPages(PromptPages):
    """The page that asks before a turn is queued."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.turn_view)
        return [path("<int:pk>/turn/", view, name="agents_agent_turn"), *super().get_urls()]

    def turn_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """GET estimates and asks; POST queues the turn, and leads to the page on which it can be watched."""
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        agent = the_agent(pk)
        channels = channels_of(agent)
        channel = chosen_channel(request, channels)
        initial = {"channel": channel.slug if channel is not None else ""}
        form = TurnForm(request.POST if request.method == "POST" else None, channels=channels, initial=initial)
        if request.method == "POST" and channel is not None and form.is_valid():
            try:
                run = start_turn(agent=agent, channel=channel, prompt=form.cleaned_data["prompt"])
            except TurnRefused as error:
                form.add_error(None, str(error))
            else:
                text = f"Turn {run.pk} is queued; a worker (manage.py work) takes it."
                self.message_user(request, text, messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:agents_run_change", args=[run.pk]))
        needs, problem = None, ""
        if channel is not None:
            try:
                needs = turn_needs(agent, channel)
            except StageFailed as error:
                problem = f"No turn can begin: a required stage failed ({error})."
        waiting = Run.objects.filter(agent=agent, status__in=["pending", "running"]).order_by("-pk")[:5]
        key = problem_of("actor", needs.model) if needs is not None else ""
        return self.page(
            request,
            "admin/agents/agent/turn.html",
            f"Run a turn of {display.marked(agent.display_name)}",
            agent=display.agent_chip(agent),
            agent_url=reverse("admin:agents_agent_change", args=[agent.pk]),
            slug=agent.slug,
            inactive=not agent.is_active,
            channel=channel,
            form=form,
            needs=needs,
            cost=_cost(needs),
            problem=display.visible(problem or key),
            waiting=[display.page_of(run, f"run {run.pk}") for run in waiting],
        )


def turn_needs(agent: Agent, channel: Channel) -> TurnNeeds:
    """Calls, tokens and dollars of one turn, from the prompt as it would be now; asks no model.

    Tokens are characters / 4; that it takes two calls of 120 tokens is assumed.

    Raises:
        StageFailed: A required stage failed.
    """
    model = agent.model_id or model_of("actor")
    shown = preview_prompt(agent=agent, channel=channel)
    tools = sum(len(tool.description) + len(json.dumps(tool.input_schema)) for tool in tool_definitions())
    first = (len(shown.system) + len(shown.user) + tools) // CHARACTERS_PER_TOKEN
    costs = [ledger.estimate_cost(model, first + n * REPLY_TOKENS, REPLY_TOKENS) for n in range(CALLS)]
    known = [cost for cost in costs if cost is not None]
    return TurnNeeds(
        model=model,
        calls=CALLS,
        input_tokens=CALLS * first + (CALLS - 1) * REPLY_TOKENS,
        output_tokens=CALLS * REPLY_TOKENS,
        cost_usd=sum(known, Decimal(0)) if len(known) == CALLS else None,
        is_free=provider_of(model) != "anthropic",
    )


def _cost(needs: TurnNeeds | None) -> object:
    if needs is None:
        return display.EMPTY
    if needs.is_free:
        return display.badge("free", "good", "this actor needs no network")
    return display.money(needs.cost_usd, unpriced=0 if needs.cost_usd is not None else needs.calls)
