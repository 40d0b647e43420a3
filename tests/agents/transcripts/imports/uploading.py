"""Small steps that the tests of imports over the console share."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from agents.kit.models import owner_name
from agents.models import Import
from agents.transcripts.importer import ReadOptions
from agents.transcripts.imports import jobs
from tests.console import staff

MAY_SAY = (
    "agents.view_import",
    "agents.view_message",
    "agents.add_message",
    "agents.add_channel",
    "agents.add_channelmember",
)
MAY_MAKE = ("agents.add_agent", "agents.change_agent")
PERSONA = "slug: guide\ndisplay_name: Harbour Guide\nsystem_prompt: You are the harbour guide. Dry and exact.\n"
ADD = "/admin/agents/import/add/"


def lines(*said: tuple[str, str], **more: Any) -> str:
    """JSON Lines of (speaker, text)."""
    return "".join(json.dumps({"speaker": who, "text": text, **more}) + "\n" for who, text in said)


def support_log(tickets: int = 26) -> str:
    """A CSV file of customers, one a ticket, and of nora, who answers in all of them; its times have no zone."""
    rows = ["time,author,ticket,build,message"]
    for number in range(tickets):
        build = 41 if 2 * number < tickets else 42
        rows.append(f"2026-11-01 08:{number:02},customer {number},T{number},{build},Where is order {number}?")
        rows.append(f"2026-11-01 09:{number:02},nora,T{number},{build},It left this morning.")
    return "\n".join(rows) + "\n"


def file(text: str | bytes, name: str = "talk.jsonl") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, text.encode() if isinstance(text, str) else text)


def somebody(*more: str, username: str = "olga") -> User:
    """Somebody who may import conversations and make agents."""
    return staff(*MAY_SAY, *MAY_MAKE, *more, username=username)


def uploaded(upload: SimpleUploadedFile, user: User | None = None) -> Import:
    return jobs.upload(upload=upload, user=user or somebody())


def submit(job: Import, **options: Any) -> None:
    """Press Import with these choices."""
    jobs.submit(job, ReadOptions(**options))


def work() -> bool:
    """What a worker does next."""
    return jobs.work_one(owner=owner_name())


def imported(job: Import, **options: Any) -> Import:
    submit(job, **options)
    assert work()
    job.refresh_from_db()
    return job


def upload(client: Client, *files: SimpleUploadedFile) -> Import:
    """Upload files over the form; returns the import."""
    answer = client.post(ADD, {"files": list(files)})
    assert answer.status_code == 302, answer.content.decode()
    job: Import = Import.objects.latest("pk")
    assert answer["Location"] == reverse("admin:agents_import_change", args=[job.pk])
    return job


def held(page: str) -> dict[str, list[str]]:
    """The files and imports that the preview of personas holds, as its button sends them."""
    names = ("name", "content", "import")
    return {name: [unescape(value) for value in re.findall(rf'name="{name}" value="([^"]*)"', page)] for name in names}


class _Form(HTMLParser):
    """The fields of one form of a page, with what a browser would send."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.action, self.inside, self.fields, self._name = action, False, dict[str, str](), ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "form":
            self.inside = given.get("action") == self.action
        if not self.inside:
            return
        if tag in ("select", "textarea"):
            self._name = name
            self.fields[name] = ""
        elif tag == "option" and self._name and "selected" in given:
            self.fields[self._name] = value
        elif tag == "input" and (given.get("type") in ("text", "hidden") or "checked" in given):
            self.fields[name] = value

    def handle_data(self, data: str) -> None:
        if self._name and self.lasttag == "textarea":
            self.fields[self._name] += data.lstrip("\r\n").replace("\n", "\r\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.inside = False
        if tag in ("select", "textarea"):
            self._name = ""


def filled_in(html: str, action: str) -> dict[str, str]:
    """What a browser would send of the form with this address."""
    form = _Form(action)
    form.feed(html)
    assert form.fields, f"no form with the address {action}"
    return form.fields
