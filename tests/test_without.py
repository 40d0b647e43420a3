"""Apps can be taken out: their folders and their lines in the settings are deleted, and what is left works.

That none of them needs another is in the table of ``test_imports.py``; so all are taken out at once here, and one by one by `make fuzz`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.machinery import THOROUGH
from tests.without import copy_without, run

REMOVABLE = ("agents.debates", "agents.swarm", "agents.alerts", "evaluation.experiments")
TESTS = ("tests/test_registry.py", "tests/test_imports.py", "tests/api/test_schema.py")
SCENES = {
    "debate": "agents.debates",
    "swarm": "agents.swarm",
    "experiment": "evaluation.experiments",
}  # of `manage.py demo`
# Prints the pages that do not answer.
PAGES = """
import django
django.setup()
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from agents.models import Agent, Channel
client = Client(headers={"host": "localhost"})
client.force_login(get_user_model().objects.create_superuser("ada"))
chat, agent = Channel.objects.filter(slug__startswith="chat-").earliest("pk"), Agent.objects.get(slug="michael")
names = ("index", "review", "help", "glossary", "agents_agent_changelist", "agents_run_changelist", "evaluation_drift_overview")
paths = [
    *(reverse(f"admin:{name}") for name in names),
    reverse("admin:agents_agent_change", args=[agent.pk]),
    reverse("admin:agents_channel_chat", args=[chat.pk]),
    reverse("admin:agents_channel_transcript", args=[chat.pk]),
    "/api/", "/api/agents/", "/api/runs/", "/api/schema/",
]
print({path: status for path in paths if (status := client.get(path).status_code) != 200})
"""


@pytest.mark.slow
@pytest.mark.parametrize("apps", [REMOVABLE, *([app] for app in REMOVABLE if THOROUGH)], ids=" ".join)
def test_the_product_works_without_apps(apps: Sequence[str], tmp_path: Path) -> None:
    copy = copy_without(apps, tmp_path)
    script = tmp_path / "messages.txt"
    script.write_text("Hello.\n")

    run(copy, ["manage.py", "check"])
    run(copy, ["manage.py", "makemigrations", "--check", "--dry-run"])
    run(copy, ["manage.py", "migrate", "-v0"])
    assert "16 created" in run(copy, ["manage.py", "seed"])
    assert "Michael Scott" in run(copy, ["manage.py", "demo"])
    for word, app in SCENES.items():
        run(copy, ["manage.py", "demo", "--scene", word], codes=(2,) if app in apps else (0,))
    talk = json.loads(run(copy, ["manage.py", "chat", "michael", "--script", str(script), "--json"]))
    run(copy, ["manage.py", "evaluate", "--agents", "michael", "--samples", "5"], codes=(0, 1, 2))
    assert [exchange["status"] for exchange in talk["exchanges"]] == ["completed"]
    assert run(copy, ["-c", PAGES]).strip() == "{}"
    run(copy, ["manage.py", "seed", "--remove"])
    run(copy, ["-m", "pytest", "-q", "-x", *TESTS])
