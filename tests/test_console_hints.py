"""A hint that names a command stands on a page with a link or button to do the same in the browser, where that can be done there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest
from django.test import Client

from tests.console import signed_in, superuser
from tests.listed_rows import MAKERS, people
from tests.test_console_roles import routes

pytestmark = pytest.mark.django_db

# What a person can do in the browser: the command, and how the addresses go on that do the same.
DOORS = {
    "calibrate_judge": "/labelset/add/|/judgecalibration/passport/",
    "capture_baseline": "/capture/|/labelset/add/|/agents/agent/",
    "chat": "/chat/|/agents/agent/",
    "check_judge": "/judgecalibration/(check|passport)/",
    "compare": "compare",
    "configure": "/agentevaluationconfig/",
    "costs": "/llmcall/",
    "debate": "/debate/add/",
    "draft_propositions": "/proposition/suggest/",
    "drift": "/drift|/overview/|/driftalert/",
    "evaluate": "/evaluate/|/agents/agent/",
    "experiment": "/experiment/add/|/experiments/",
    "export_scores": "/evaluationscore/export/",
    "import_agents": "/import/add/",
    "import_transcript": "/import/add/",
    "lab": "/experiment/lab/|/experiments/",
    "schedule": "/evaluationschedule/(add/)?",
    "try_proposition": "/try/",
    "turn": "/turn/|/agents/agent/",
}
# What only a terminal can: processes, accounts and tables of the installation, example data, a person's data erased.
TERMINAL = {
    *("work", "migrate", "seed", "check", "createsuperuser", "forget", "prune_logs", "check_propositions", "demo"),
    *("export_payloads", "changepassword", "serve"),
}
LEADS = re.compile(r'(?:href|formaction|action)="([^"]+)"')


def pages() -> Iterator[str]:
    """Every address of the console that is no help: help says what the terminal offers, too."""
    for route in routes():
        if not route.name.endswith(("_help", "_history")) and route.name not in (
            "help",
            "glossary",
            "document",
            "settings",
        ):
            yield route.url()


def unlinked(client: Client) -> set[tuple[str, str]]:
    client.raise_request_exception = False  # some rows are made for lists only
    found = set()
    for url in pages():
        answer = client.get(url)
        if answer.status_code != 200 or "html" not in answer["Content-Type"]:
            continue
        html = answer.content.decode()
        _, _, content = html.partition('id="content"')
        leads = [unescape(address) for address in LEADS.findall(content)]
        leads += [url] if "<form" in content else []
        for command in set(re.findall(r"manage\.py ([a-z_]+)", content)) - TERMINAL:
            door = DOORS.get(command)
            if door is None or not any(re.search(door, address) for address in leads):
                found.add((re.sub(r"/\d+/", "/N/", url), command))
    return found


@pytest.mark.slow
def test_a_hint_on_a_page_with_or_without_rows_has_a_button() -> None:
    client = signed_in(superuser())
    assert sorted(unlinked(client)) == []

    cast = people()
    for make in MAKERS.values():
        make(cast, 0, 2)
    assert sorted(unlinked(client)) == []
