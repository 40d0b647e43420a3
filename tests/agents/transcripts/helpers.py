"""Small steps that the tests of import and export share."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from django.core.management import call_command

from agents.models import Agent, Message


def make_agent(slug: str, display_name: str = "", system_prompt: str = "You are somebody.") -> Agent:
    return Agent.objects.create(slug=slug, display_name=display_name or slug.title(), system_prompt=system_prompt)


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def run_json(command: str, *args: Any, **options: Any) -> dict[str, Any]:
    """The object a command prints with ``--json``."""
    out = io.StringIO()
    call_command(command, *args, json=True, stdout=out, **options)
    result: dict[str, Any] = json.loads(out.getvalue())
    return result


def said(channel: str | None = None) -> list[tuple[str, str]]:
    """(author's name, text) of the messages in order."""
    rows = Message.objects.select_related("agent", "user").order_by("channel__pk", "position")
    if channel:
        rows = rows.filter(channel__slug=channel)
    return [(row.author_name, row.text) for row in rows]


def exported(channel: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("export_transcript", channel=channel, stdout=out, **options)
    return out.getvalue()
