"""An agent's prompt as it would be sent now, and the button *Run a turn*."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from agents.console import display
from agents.console.display import Tone
from agents.console.site import GrowingTextarea, ModelAdmin, Select
from agents.llm import ledger
from agents.llm.endpoints import model_of, problem_of, provider_of
from agents.models import Agent, Channel, Run
from agents.turn.pipeline import StageFailed
from agents.turn.prompt import PROMPT_CHARACTERS, Prompt, preview_prompt
from agents.turn.send_message import TurnRefused, start_turn
from agents.turn.tools import tool_definitions

MOST_CHANNELS = 100  # to choose from
NEEDED = ("agents.view_agent", "agents.view_message")
OWN = ("persona", "instructions", "memory")  # parts of every prompt; all others were added by a stage of the pipeline
TRACE_TONES: dict[str, Tone] = {"ran": "good", "skipped": "plain", "failed": "bad"}


class PromptPages(ModelAdmin[Agent]):
    """An agent's prompt as it would be sent now, and the page that asks before a turn is queued."""

    def get_urls(self) -> list[URLPattern]:
        guarded = self.admin_site.admin_view
        return [
            path("<int:pk>/prompt/", guarded(self.prompt_view), name="agents_agent_prompt"),
            path("<int:pk>/turn/", guarded(self.turn_view), name="agents_agent_turn"),
            *super().get_urls(),
        ]

    def agent_page(self, request: HttpRequest, agent: Agent, name: str, title: str, **context: Any) -> HttpResponse:
        """One of the pages of an agent beside its form; `title` is formatted with the agent's name."""
        return self.page(
            request,
            f"admin/agents/agent/{name}.html",
            title.format(display.marked(agent.display_name)),
            agent=display.agent_chip(agent),
            agent_url=reverse("admin:agents_agent_change", args=[agent.pk]),
            **context,
        )

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
        return self.agent_page(
            request,
            agent,
            "prompt",
            "What {} would read",
            model=display.visible(agent.model_id or model_of("actor")),
            channels=[(one.slug, display.marked(one)) for one in channels],
            channel=channel,
            tools=[(tool.name, display.block(tool.description)) for tool in tool_definitions()],
            **preview,
        )

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
        needs: dict[str, Any] = {}
        problem = ""
        if channel is not None:
            try:
                needs = turn_needs(agent, channel)
                problem = problem_of("actor", needs["model"])
            except StageFailed as error:
                problem = f"No turn can begin: a required stage failed ({error})."
        waiting = Run.objects.filter(agent=agent, status__in=["pending", "running"]).order_by("-pk")[:5]
        return self.agent_page(
            request,
            agent,
            "turn",
            "Run a turn of {}",
            inactive=not agent.is_active,
            channel=channel,
            form=form,
            needs=needs,
            problem=display.visible(problem),
            waiting=[display.page_of(run, f"run {run.pk}") for run in waiting],
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


def _preview(preview: Prompt) -> dict[str, Any]:
    own = display.badge("in every prompt")
    return {
        "sections": [
            {
                "heading": display.visible(section.heading),
                "added": own
                if section.stage in OWN
                else display.badge(
                    f"stage {section.stage or 'unnamed'}", "accent", "added by this stage of the turn's pipeline"
                ),
                "size": f"{len(section.body):,}",
                "body": display.block(section.body),
                "is_open": section.stage not in OWN,
            }
            for section in preview.sections
        ],
        "first_message": display.block(preview.user_text),
        "first_size": f"{len(preview.user_text):,}",
        "said": len(preview.transcript),
        "size": f"{len(preview.system_text) + len(preview.user_text):,}",
        "draft": display.block(preview.draft.text) if preview.draft is not None else "",
        "trace": [
            {
                "stage": display.visible(entry.stage),
                "status": display.badge(entry.status, TRACE_TONES.get(entry.status, "plain")),
                "why": display.visible(entry.why),
                "ms": f"{entry.ms:.0f}",
            }
            for entry in preview.trace
        ],
    }


PERMISSION = "agents.add_run"
CALLS = 2  # one says something, the next ends the turn: an assumption, for an agent may use other tools, too
REPLY_TOKENS = 120  # of each answer: an assumption, too
CHARACTERS_PER_TOKEN = 4


class TurnForm(forms.Form):
    """Where the agent acts, and what an operator asks of this turn."""

    channel = forms.ChoiceField(widget=Select, help_text="what it says there is really said; its corrections apply")
    prompt = forms.CharField(
        required=False,
        max_length=PROMPT_CHARACTERS,
        widget=GrowingTextarea,
        label="What you ask of this turn",
        help_text="shown to the agent, not said in the channel; empty: it decides what to do",
    )

    def __init__(self, *args: Any, channels: Sequence[Channel], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["channel"].choices = [(one.slug, display.marked(one)) for one in channels]  # type: ignore[attr-defined]


def turn_needs(agent: Agent, channel: Channel) -> dict[str, Any]:
    """Model, calls, tokens and dollars of one turn, from the prompt as it would be now; asks no model.

    Tokens are characters / 4; that it takes two calls of 120 tokens is assumed.

    Raises:
        StageFailed: A required stage failed.
    """
    model = agent.model_id or model_of("actor")
    shown = preview_prompt(agent=agent, channel=channel)
    tools = sum(len(tool.description) + len(json.dumps(tool.input_schema)) for tool in tool_definitions())
    first = (len(shown.system_text) + len(shown.user_text) + tools) // CHARACTERS_PER_TOKEN
    costs = [ledger.estimate_cost(model, first + n * REPLY_TOKENS, REPLY_TOKENS) for n in range(CALLS)]
    priced = [cost for cost in costs if cost is not None]
    if provider_of(model) != "anthropic":
        cost = display.badge("free", "good", "this actor needs no network")
    elif len(priced) == CALLS:
        cost = display.money(sum(priced, Decimal(0)))
    else:
        cost = display.money(None, unpriced=CALLS)
    return {
        "model": model,
        "calls": CALLS,
        "input_tokens": CALLS * first + (CALLS - 1) * REPLY_TOKENS,
        "output_tokens": CALLS * REPLY_TOKENS,
        "cost": cost,
    }
