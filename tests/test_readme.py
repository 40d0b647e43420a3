"""The README's commands, in their order: they run on the demo's data and leave its story intact."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from agents.models import Agent
from correction.config.settings import resolve_all, resolve_defaults
from evaluation.models import Baseline
from tests.console import read, signed_in, superuser

pytestmark = pytest.mark.django_db(transaction=True)

DRIFTED = {"angela", "dwight", "jim", "kevin", "michael", "stanley"}
PLACEHOLDER = re.compile(r"<[^>]+>|YOUR_|…")


def commands(text: str) -> Iterator[list[str]]:
    """The commands of the examples that can run as they stand, in their order."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.S | re.M):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if "manage.py" in words[:2] or ".venv/bin/python" in words[:1]:
                command = words[words.index("manage.py") + 1 :] if "manage.py" in words else []
                if command and not PLACEHOLDER.search(line.split(" #")[0]):
                    yield command


def drifted(client: Client) -> set[str]:
    """The agents that the overview shows as drifted."""
    html = read(client, reverse("admin:evaluation_drift_overview") + "?state=drifted")
    shown = re.findall(r'id="overview-(\d+)"', html)
    return set(Agent.objects.filter(pk__in=shown).values_list("slug", flat=True))


def run(words: list[str]) -> int:
    """The exit code of a command."""
    try:
        call_command(*words)
    except CommandError as error:
        return error.returncode
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_the_commands_of_the_readme_leave_the_demo_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (settings.BASE_DIR / "README.md").read_text()
    monkeypatch.chdir(tmp_path)  # for the files that they write
    monkeypatch.setattr(settings, "PROPOSITION_DIRS", [tmp_path])  # drafts go here
    client = signed_in(superuser())
    found = list(commands(page))
    assert found[0] == ["demo"]
    assert len(found) > 15

    for words in found:
        allowed = (0, 1) if words[0] in ("say", "compare", "evaluate") else (0,)  # 1: sent back, or worse
        assert run(words) in allowed, f"manage.py {shlex.join(words)} cannot run as it stands"
        mixed = Baseline.objects.exclude(evaluation_run__where={"build": "40"}).values_list("agent__slug", flat=True)
        assert not mixed, f"manage.py {shlex.join(words)}: baselines not of build 40: {set(mixed)}"
        assert drifted(client) == DRIFTED, f"after manage.py {shlex.join(words)}"
    everybody = [config for _, config in resolve_all(Agent.objects.select_related("evaluation_config"))]
    assert all(config["behavior_requests_enabled"] for config in [*everybody, resolve_defaults()])
    the_walk_through_of_behaviour_requests(client)
    assert drifted(client) == DRIFTED


def the_walk_through_of_behaviour_requests(client: Client) -> None:
    """Every request of docs/explanation/behavior-requests.md is answered: the change waits for a person, is applied and reverted.

    Its id is 1 only in a new database.
    """
    page = (settings.BASE_DIR / "docs" / "explanation" / "behavior-requests.md").read_text()
    walk = page.partition("## Trying it")[2].partition("## ")[0].replace('"admin"', '"root"')
    answers: list[dict[str, Any]] = []
    listed: list[dict[str, Any]] = []
    for line in walk.splitlines():
        if "manage.py work --once" in line:
            call_command("work", "--once")
        if asked := re.match(r"""api (?:-d '(.*?)' )?"?\$URL([^\s"]*)""", line):
            body, path = asked.groups()
            url = "/api" + path.replace("/1/", f"/{listed[0]['id']}/" if listed else "/1/")
            answer = client.post(url, json.loads(body), content_type="application/json") if body else client.get(url)
            assert answer.status_code < 300, f"{line}: {answer.content.decode()}"
            answers.append(answer.json())
            listed = answers[-1].get("results", listed)
    assert [row["status"] for row in listed] == ["pending_review"]
    assert [answer["status"] for answer in answers[-2:]] == ["applied", "reverted"]
