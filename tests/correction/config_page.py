"""The page of a configuration: its address, its form as a browser sends it, and what was stored."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.test import Client
from django.urls import reverse

from agents.models import Agent
from correction.config.settings import SETTINGS
from correction.models import AgentEvaluationConfig


def url_of(agent: Agent | None, view: str = "target", query: str = "") -> str:
    target = agent.pk if agent else "defaults"
    return reverse(f"admin:correction_agentevaluationconfig_{view}", args=[target]) + query


def save(client: Client, agent: Agent | None, query: str = "", **typed: str) -> Any:
    return client.post(url_of(agent, query=query), {"_save": "", **typed}, follow=True)


def filled_in(html: str) -> dict[str, Any]:
    """What a browser would send of the form as it is shown."""
    sent: dict[str, Any] = {}
    for tag in re.findall(r"<input[^>]*>", html.partition('id="pl-form"')[2].partition("</form>")[0]):
        got = {key: unescape(value) for key, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        if got["type"] == "checkbox":
            sent.setdefault(got["name"], [])
        if got["type"] not in ("radio", "checkbox"):
            sent[got["name"]] = got.get("value", "")
        elif " checked" in tag:
            sent[got["name"]] = [*sent.get(got["name"], []), got["value"]]
    return sent


def own(agent: Agent) -> dict[str, Any]:
    row = AgentEvaluationConfig.objects.get(agent=agent)
    return {name: getattr(row, name) for name in SETTINGS if getattr(row, name) is not None}
