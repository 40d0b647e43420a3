"""The proposition editor as a browser uses it: its pages, its form as it is sent, and what is asked then."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote

from django.test import Client
from django.urls import reverse

from agents.models import Agent
from evaluation.propositions.entries import all_entries
from tests.console import read

EDITOR = ("evaluation.view_proposition", "evaluation.change_proposition")
TRIAL = ("evaluation.add_evaluationrun", "agents.view_message")


def url_of(view: str, owner: str = "ada", name: str = "") -> str:
    url = reverse(f"admin:evaluation_proposition_{view}", args=[owner])
    if not name:
        return url
    entry = next(e for e in all_entries() if e.proposition.id == name)
    return f"{url}?at={quote(entry.key)}"


def filled_in(html: str) -> dict[str, str]:
    """What a browser would send of the form as it is shown."""
    form = html.partition('id="pl-proposition"')[2].partition("</form>")[0]
    sent = {}
    for tag in re.findall(r"<input[^>]*>", form):
        result = {key: unescape(value) for key, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        is_switch = result["type"] in ("checkbox", "radio")
        if not re.search(r"\sdisabled[\s>]", tag) and (not is_switch or " checked" in tag):
            sent[result["name"]] = result.get("value", "on" if result["type"] == "checkbox" else "")
    for name, inside in re.findall(r'<textarea[^>]*name="([\w-]+)"[^>]*>(.*?)</textarea>', form, re.DOTALL):
        sent[name] = unescape(inside).strip()
    for name, inside in re.findall(r'<select[^>]*name="([\w-]+)"[^>]*>(.*?)</select>', form, re.DOTALL):
        sent[name] = (re.findall(r'value="([^"]*)"[^>]*selected', inside) or [""])[0]
    return sent


def write(client: Client, url: str, button: str = "_save", **typed: str) -> str:
    """As `change`, on the tab with the YAML."""
    as_yaml = client.post(url, {**filled_in(read(client, url)), "_yaml": ""}).content.decode()
    shown = as_yaml if 'name="_sentence"' in as_yaml else read(client, url)
    return str(client.post(url, {**filled_in(shown), **named(typed), button: ""}, follow=True).content.decode())


def change(client: Client, url: str, button: str = "_save", **typed: str) -> str:
    """Open the form, type, press a button, and return the page that follows."""
    sent = {**filled_in(read(client, url)), **named(typed), button: ""}
    return str(client.post(url, sent, follow=True).content.decode())


def named(typed: dict[str, str]) -> dict[str, str]:
    """Values by the names their fields have in the page."""
    return {f"prop-{name}": value for name, value in typed.items()}


def ada() -> Agent:
    return Agent.objects.get(slug="ada")
