"""The console's first page: what the ground floor has on it, who sees what, and where its numbers lead."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from agents.kit.models import ReviewItem, WorkerHeartbeat
from agents.models import Agent, Run
from tests.agents.transcripts.imports.uploading import file, uploaded
from tests.console import list_of, plain, read, signed_in, staff, superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

HOME = "/admin/"


def home(user: User | None = None, query: str = "") -> str:
    return read(signed_in(user or superuser()), HOME + query)


def card(html: str, title: str) -> str:
    """The text of a card."""
    found = [plain(one) for one in re.findall(r'<section class="pl-card.*?</section>', html, flags=re.S)]
    (text,) = [one for one in found if one.startswith(title)]
    return text.removeprefix(title).strip()


def steps(html: str) -> list[str]:
    """The titles of what is still to be set up."""
    return [plain(title) for title in re.findall(r'<li class="pl-step">.*?<h3>(.*?)</h3>', html, flags=re.S)]


def own_links(html: str) -> list[str]:
    """The addresses of the page's own links, without those of the frame around it."""
    own = html[html.index('<div class="pl-home">') :]
    return sorted(
        {unescape(url) for url in re.findall(r'<a [^>]*href="(/admin/[^"#]*)', own[: own.rindex("</section>")])}
    )


def worker(*, silent_for: int = 0, **fields: Any) -> WorkerHeartbeat:
    seen = timezone.now() - timedelta(seconds=silent_for)
    defaults = {"name": f"host:{silent_for}:x", "host": "host", "pid": 1, "kind": "work", "started_at": seen}
    return WorkerHeartbeat.objects.create(**{**defaults, "seen_at": seen, **fields})


def turn(agent: Agent, status: str = "completed", **fields: Any) -> Run:
    run: Run = Run.objects.create(agent=agent, status=status, **fields)
    return run


def test_an_empty_console_says_how_to_begin() -> None:
    html = home()

    assert "There are no agents" in steps(html)
    assert 'id="drift"' not in html, "there is nothing yet that could drift"
    assert "manage.py seed" in html
    assert f'href="{reverse("admin:agents_import_add")}"' in html

    make_agent("bob", is_active=False)
    assert "There are no agents" not in steps(home(superuser("second")))


def test_a_missing_worker_is_said_until_one_is_heard_of() -> None:
    worker(silent_for=3600)
    worker(name="gone", stopped_at=timezone.now())
    client = signed_in(superuser())
    assert "No worker is alive" in steps(read(client, HOME))

    worker()
    assert "No worker is alive" not in steps(read(client, HOME))


def test_a_worker_that_is_silent_over_long_work_is_alive() -> None:
    busy = worker(silent_for=3600)
    lease = {"lease_owner": f"{busy.name}/1", "lease_expires_at": timezone.now() + timedelta(minutes=1)}
    turn(make_agent(), "running", **lease)

    assert "No worker is alive" not in steps(home())


def test_a_judge_without_a_key_is_said_with_what_to_set(settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.ANTHROPIC_API_KEY, settings.JUDGE_BASE_URL = "claude-haiku-5-5", "", ""
    client = signed_in(superuser())
    html = read(client, HOME)
    assert "The judge cannot be called" in steps(html)
    assert "set ANTHROPIC_API_KEY" in plain(html)

    settings.ANTHROPIC_API_KEY = "sk-secret"
    html = read(client, HOME)
    assert {"The judge cannot be called", "No model judges"}.isdisjoint(steps(html))
    assert "sk-secret" not in html

    settings.JUDGE_MODEL = "offline:lexical-1"
    assert "No model judges" in steps(read(client, HOME))


def test_a_broker_that_is_away_is_said(settings: Settings) -> None:
    client = signed_in(superuser())
    assert "The broker is down" not in steps(read(client, HOME))

    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    html = read(client, HOME)
    assert "The broker is down" in steps(html)
    assert "not reached: ConnectionError" in plain(html)


def test_what_failed_lately_waits_for_a_person() -> None:
    ada = make_agent("ada")
    old = turn(ada, "failed", error="long ago")
    Run.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=8))
    turn(ada)
    client = signed_in(superuser())
    assert "to look at" not in plain(read(client, HOME))

    turn(ada, "errored", error="crashed")
    dismissed = turn(ada, "failed", error="no answer")
    assert "2 failures to look at" in plain(read(client, HOME))

    ReviewItem.objects.create(kind="failures", key=f"agents.run/{dismissed.pk}", dismissed_at=timezone.now())
    html = read(client, HOME)
    assert "1 failure to look at" in plain(html)
    assert f'href="{reverse("admin:review")}?kind=failures"' in html


def test_an_import_that_asks_a_question_is_no_failure() -> None:
    user = superuser()
    asking = uploaded(file("Wer,Was\nPat,Hello\n", "t.csv"), user)
    assert asking.error
    assert "to look at" not in plain(read(signed_in(user), HOME))

    assert uploaded(file("neither a log nor a table", "t.jsonl"), user).error
    assert "1 failure to look at" in plain(read(signed_in(user), HOME))


def test_parts_need_their_permissions() -> None:
    html = home(staff("agents.view_agent"))

    assert "There are no agents" in steps(html)
    assert "No worker is alive" not in html


def test_who_may_see_no_part_is_told_and_gets_the_available_lists() -> None:
    assert "You may not view anything here yet" in home(staff(username="nobody"))

    html = home(staff("auth.view_user", username="clerk"))
    assert f'href="{list_of(User)}"' in html[html.index('<section class="pl-menu">') :]
    assert "You may not view anything" not in home(staff("kit.view_llmcall", username="reader"))
