"""The page of the settings in effect: complete, true, and without a secret."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.urls import reverse
from django.utils.module_loading import import_string

from tests import zygote
from tests.console import plain, read, signed_in, staff, superuser, viewer

ROOT = Path(settings.BASE_DIR)
READERS = {"str", "list", "int", "float", "bool", "flag", "number"}
KNOWN: dict[str, dict[str, dict[str, str]]] = yaml.safe_load((ROOT / "project/effective.yaml").read_text())
NAMES = {name for rows in KNOWN.values() for name in rows}
groups = import_string(settings.EFFECTIVE_SETTINGS)
without_password = import_string(settings.EFFECTIVE_SETTINGS.rpartition(".")[0] + ".without_password")


def read_by_the_settings() -> set[str]:
    """The names in calls such as ``env.str("NAME")``, ``flag("NAME")`` and ``number("NAME", 1)``."""
    found = set()
    for path in (ROOT / "project").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if function in READERS and re.fullmatch(r"[A-Z][A-Z_]+", str(node.args[0].value)):
                    found.add(str(node.args[0].value))
    return found


def test_every_setting_that_is_read_is_explained_and_stands_in_the_example() -> None:
    example = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))

    assert read_by_the_settings() <= NAMES
    assert example == NAMES


def test_each_setting_has_a_unit_and_says_what_it_does() -> None:
    for rows in KNOWN.values():
        for name, said in rows.items():
            assert said["what"].endswith("."), name
            assert said.get("unit") or said.get("secret") or said.get("url"), name


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://ann:s3cret@db:5432/name", "postgres://•••@db:5432/name"),
        ("postgres://ann:s3/c#r?e@t@db/name", "postgres://•••"),
        ("https://s3cret@proxy.example.org/v1", "https://•••@proxy.example.org"),
        ("sqlite:////srv/db.sqlite3", "sqlite:////srv/db.sqlite3"),
        ("postgres://h:5432/db?user=u&password=p@s3cret", "postgres://•••"),
        ("https://api.example/v1/sk-s3cret-0123456789", "https://api.example"),
        ("host:6379 s3cret", "•••"),
    ],
)
def test_no_password_of_a_url_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
    assert "s3cret" not in without_password(url)


SECRETS = {
    "SECRET_KEY": "hush-key-0123456789012345678901234567890123456789012345",
    "SECRET_KEY_FALLBACKS": "hush-old-1,hush-old-2",
    "ANTHROPIC_API_KEY": "hush-anthropic",
    "METRICS_TOKEN": "hush-metrics",
    "SENTRY_DSN": "https://hush-dsn@127.0.0.1:9/1",
    "CELERY_BROKER_URL": "redis://bob:hush-cache@127.0.0.1:1/0",
    "ANTHROPIC_BASE_URL": "http://bob:hush-base@127.0.0.1:1",
    "JUDGE_BASE_URL": "http://hush-judge@127.0.0.1:1",
    "ACTOR_BASE_URL": "http://127.0.0.1:1/?key=hush-actor",
}
PRINT_PAGE = """
import django; django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client(); client.force_login(User.objects.create_superuser("root"))
print(client.get("/admin/settings/", secure=True, headers={"host": "localhost"}).content.decode())
"""


def test_the_page_shows_no_secret_and_says_that_each_is_set(tmp_path: Path, database_file: Path) -> None:
    environment = {**os.environ, **SECRETS, "DJANGO_SETTINGS_MODULE": "project.settings", "DEBUG": "true"}
    environment["DATABASE_URL"] = f"sqlite:///{database_file}"
    environment["LLM_MAX_CONCURRENCY"] = "7"
    (tmp_path / "token").write_text("hush-from-file\n")
    environment.pop("METRICS_TOKEN")
    environment["METRICS_TOKEN_FILE"] = str(tmp_path / "token")
    run = zygote.run(
        [sys.executable, "-c", PRINT_PAGE], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180
    )
    told = plain(run.stdout)

    assert run.returncode == 0, run.stderr
    assert "hush" not in run.stdout
    for name in ("SECRET_KEY", "SECRET_KEY_FALLBACKS", "ANTHROPIC_API_KEY", "SENTRY_DSN"):
        assert f"{name} set – set" in told, name
    assert "METRICS_TOKEN set – set by file" in told
    assert "LLM_MAX_CONCURRENCY 7 calls set" in told
    assert "LLM_GATE_SLOTS 4 calls default" in told
    assert "redis://•••@127.0.0.1:1/0" in told


@pytest.mark.django_db
def test_the_page_is_for_administrators_and_whoever_may_see_accounts() -> None:
    url = reverse("admin:settings")
    told = plain(read(signed_in(superuser()), url))

    assert all(name in told for name in NAMES)
    assert signed_in(staff("auth.view_user")).get(url).status_code == 200
    outsider = signed_in(staff("agents.view_agent", username="other"))
    assert outsider.get(url).status_code == 403
    assert url not in read(outsider, reverse("admin:index"))
    # Everything may be viewed by this one, accounts too: it is a tab of theirs.
    assert url in read(signed_in(viewer()), reverse("admin:auth_user_changelist"))


def test_a_value_is_what_is_in_effect(settings: object) -> None:
    settings.LLM_GATE_SLOTS = 11  # type: ignore[attr-defined]
    found = {row.name: row for _, rows in groups() for row in rows}

    assert found["LLM_GATE_SLOTS"].value == "11"
    assert found["WORKER_SWEEP"].unit == "seconds"
