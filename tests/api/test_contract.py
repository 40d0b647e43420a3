"""The running server keeps to its schema, whatever is sent to it and whoever sends it (schemathesis).

``make fuzz`` sends more: FUZZ_EXAMPLES says how many requests of a kind per route.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.test import override_settings
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from agents.kit.models import ApiToken
from agents.models import Agent, Channel
from tests.api.seeded import member, seed

SEED = 20261122
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance"
)
CONFIGURATION = """
hooks = "tests.api.schemathesis_hooks"
request-timeout = 40
[dictionaries.slugs]
values = {slugs}
[dictionaries.ids]
values = [1, 2, 3, 4]
[parameters]
{parameters}
"""

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="session")
def live_server() -> Iterator[LiveServer]:
    """pytest-django's server; it has no certificate, everything else stays as it is shipped."""
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: set DATABASE_URL")
    with override_settings(SECURE_SSL_REDIRECT=False, ALLOWED_HOSTS=["*"]):
        server = LiveServer("127.0.0.1")
        yield server
        server.stop()


@pytest.fixture
def _unlimited(settings: Settings) -> None:
    settings.API_PAID_PER_MINUTE = settings.API_SENDS_PER_MINUTE = settings.API_INGESTS_PER_MINUTE = 1_000_000


@pytest.mark.usefixtures("_unlimited")
@pytest.mark.parametrize("group", ["Viewer", "Operator", "Editor"])
def test_the_server_keeps_to_its_schema(live_server: LiveServer, group: str, tmp_path: Path) -> None:
    seed()
    _, key = ApiToken.make(user=member(group), name="test", expires_at=None)
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(_configuration())
    many = ["--max-examples", str(EXAMPLES), "--phases", "examples,coverage,fuzzing"]
    few = ["--max-examples", "2", "--phases", "examples,fuzzing"]

    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration), "run"),
            *(f"{live_server.url}/api/schema/?format=json", "--url", live_server.url),
            *("-H", f"Authorization: Token {key}", "--checks", CHECKS, "--seed", str(SEED)),
            *("--generation-deterministic", "--no-shrink", "--continue-on-failure"),
            *(many if EXAMPLES else few),
        ],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3600 if EXAMPLES else 300,
    )

    assert found.returncode == 0, found.stdout[-20_000:] + found.stderr[-2_000:]


def _configuration() -> str:
    """What stands in paths and parameters, now and then, so that routes find something."""
    slugs = [*Agent.objects.values_list("slug", flat=True)[:3], *Channel.objects.values_list("slug", flat=True)[:3]]
    by_slug = ("path.slug", "path.agent", "query.agent", "query.channel", "body.agent", "body.channel")
    names = {**dict.fromkeys(by_slug, "slugs"), **dict.fromkeys(("path.id", "path.pk", "query.run"), "ids")}
    lines = [f'"{name}" = {{ dictionary = "{which}", probability = 0.7 }}' for name, which in names.items()]
    return CONFIGURATION.format(slugs=json.dumps(slugs), parameters="\n".join(lines))
