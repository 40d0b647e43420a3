"""What an agent's model would read if its turn began now: each part of the prompt with the stage that added it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.display import Tone
from agents.adminsite import ModelAdmin
from agents.llm.endpoints import model_of
from agents.models import Agent, Channel
from agents.turn.pipeline import Section, StageFailed, TraceEntry
from agents.turn.prompt import PromptPreview, preview_prompt
from agents.turn.tools import tool_definitions

MOST_CHANNELS = 100  # to choose from
NEEDED = ("agents.view_agent", "agents.view_message")
OWN = ("persona", "instructions", "memory")  # parts of this floor; all others a stage of the pipeline added
TRACE_TONES: dict[str, Tone] = {"ran": "good", "skipped": "plain", "failed": "bad"}


class PromptPages(ModelAdmin[Agent]):
    """The page of an agent's prompt."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.prompt_view)
        return [path("<int:pk>/prompt/", view, name="agents_agent_prompt"), *super().get_urls()]

    def prompt_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Nothing is asked of a model, and nothing is written."""
        if not request.user.has_perms(NEEDED):
            raise PermissionDenied
        agent = the_agent(pk)
        channels = channels_of(agent)
        channel = chosen_channel(request, channels)
        if channel is None:
            return self._prompt_page(request, agent, channels, None)
        try:
            preview = preview_prompt(agent=agent, channel=channel)
        except StageFailed as error:
            return self._prompt_page(request, agent, channels, channel, problem=display.visible(error))
        return self._prompt_page(request, agent, channels, channel, **_preview(preview))

    def _prompt_page(
        self, request: HttpRequest, agent: Agent, channels: Sequence[Channel], channel: Channel | None, **more: Any
    ) -> TemplateResponse:
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
            **more,
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
        "sections": [_section(section) for section in found.sections],
        "first_message": display.block(found.user),
        "first_size": f"{len(found.user):,}",
        "said": len(found.transcript),
        "size": f"{len(found.system) + len(found.user):,}",
        "draft": display.block(found.draft.text) if found.draft is not None else "",
        "trace": [_trace(entry) for entry in found.trace],
    }


def _section(section: Section) -> dict[str, Any]:
    return {
        "heading": display.visible(section.heading),
        "added": added_by(section.stage),
        "size": f"{len(section.body):,}",
        "body": display.block(section.body),
        "is_open": section.stage not in OWN,
    }


def added_by(stage: str) -> SafeString:
    """Who added a part of a prompt: this floor, or a stage of the pipeline."""
    if stage in OWN:
        return display.badge("in every prompt")
    return display.badge(f"stage {stage or 'unnamed'}", "accent", "added by this stage of the turn's pipeline")


def _trace(entry: TraceEntry) -> dict[str, Any]:
    return {
        "stage": display.visible(entry.stage),
        "status": display.badge(entry.status, TRACE_TONES.get(entry.status, "plain")),
        "why": display.visible(entry.why),
        "ms": f"{entry.ms:.0f}",
    }
