"""What a team does not need it can delete from INSTALLED_APPS: everything else works without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

SETTINGS = """
from project.settings import *
INSTALLED_APPS = [app for app in INSTALLED_APPS if app not in {gone!r}]
TURN_PIPELINE = [path for path in TURN_PIPELINE if not path.startswith({gone!r})]
"""
PAGES = """
import django
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from agents.models import Agent, Channel
user = get_user_model().objects.create_superuser("ada")
client = Client(headers={"host": "localhost"})
client.force_login(user)
chat, agent = Channel.objects.get(slug__startswith="chat-"), Agent.objects.get(slug="michael")
paths = [
    *map(reverse, ("admin:index", "admin:help", "admin:glossary", "admin:agents_agent_changelist", "admin:agents_run_changelist")),
    reverse("admin:agents_agent_change", args=[agent.pk]),
    reverse("admin:agents_channel_chat", args=[chat.pk]),
    reverse("admin:agents_channel_transcript", args=[chat.pk]),
    "/api/", "/api/agents/", "/api/runs/", "/api/schema/",
]
print({path: status for path in paths if (status := client.get(path).status_code) != 200})
"""


@pytest.mark.parametrize("gone", [("agents.debates", "agents.swarm")])
def test_everything_else_works_where_apps_are_not_installed(gone: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "without.py").write_text(SETTINGS.format(gone=gone))
    script = tmp_path / "messages.txt"
    script.write_text("Hello.\n")
    env = os.environ | {
        "DJANGO_SETTINGS_MODULE": "without",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{settings.BASE_DIR}",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
        "DEBUG": "1",
    }

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], env=env, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("manage.py", "check")
    run("manage.py", "makemigrations", "--check", "--dry-run")
    run("manage.py", "migrate", "-v0")
    assert "16 created" in run("manage.py", "seed")
    (exchange,) = json.loads(run("manage.py", "chat", "michael", "--script", str(script), "--json"))["exchanges"]
    assert (exchange["status"], len(exchange["replies"])) == ("completed", 1)
    assert run("-c", PAGES).strip() == "{}"
