"""The pages of the gate's log as logs are: quick, read only, and safe whatever stands in them."""

from __future__ import annotations

import re
import uuid

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agents.models import LLMCall
from correction.models import CorrectionLog, GateDimensionResult, ObservedMessage
from tests.console import HOSTILE, Browser, list_of, page_of, queries, read, signed_in, staff, viewer
from tests.correction.judged_drafts import corrected, make_log
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


LOGS: tuple[type[Model], ...] = (CorrectionLog, ObservedMessage)


INLINE = re.compile(r"<script(?![^>]*\bsrc=)[^>]*>")


def fill(number: int, *, text: str = "Hooray!") -> None:
    for n in range(number):
        agent = make_agent(f"agent-{uuid.uuid4().hex[:8]}", display_name=f"{text} {n}")
        message = corrected(agent, text=text, said=text, feedback=text)
        log = CorrectionLog.objects.get(message=message, attempt=1)
        LLMCall.objects.create(
            role="judge", purpose="gate", model="m", provider="anthropic", status="ok", work_id=log.work_id
        )
        ObservedMessage.objects.create(message=message, session=uuid.uuid4(), error=text)


def pages() -> list[str]:
    log, observed = CorrectionLog.objects.earliest("pk"), ObservedMessage.objects.earliest("pk")
    assert log.message is not None
    assert log.run is not None
    return [
        *(list_of(model) for model in LOGS),
        *(page_of(row) for row in (log, observed, log.message, log.run)),
        page_of(log.message.channel, "transcript"),
    ]


# -- as logs are
def test_the_number_of_queries_does_not_grow_with_the_rows(root: Client) -> None:
    fill(3)
    few = {url: queries(root, url) for url in pages()}
    fill(20)

    for url, before in few.items():
        after = queries(root, url)
        assert len(after) == len(before), f"{url}: {len(before)} queries became\n" + "\n".join(after)


def test_a_long_session_needs_no_more_queries_than_a_short_one(root: Client) -> None:
    ada, session, person = make_agent(), uuid.uuid4(), User.objects.create_user("grace")
    first = make_log(ada, {"adherence": 1.0, "fluency": 2.0}, session=session, outcome="corrected")
    GateDimensionResult.objects.update(mark="right", marked_by=person, marked_at=timezone.now())
    few = len(queries(root, page_of(first)))
    for attempt in range(2, 12):
        make_log(ada, {"adherence": 1.0, "fluency": 2.0}, session=session, attempt=attempt, outcome="corrected")
    GateDimensionResult.objects.update(mark="right", marked_by=person, marked_at=timezone.now())

    assert len(queries(root, page_of(first))) == few


@pytest.mark.parametrize("model", LOGS)
def test_the_logs_are_not_counted(root: Client, model: type[Model]) -> None:
    fill(2)

    counted = [
        sql for sql in queries(root, list_of(model)) if re.match(rf'SELECT COUNT.*FROM "{model._meta.db_table}"', sql)
    ]
    assert all("LIMIT" in sql for sql in counted), counted


@pytest.mark.parametrize("model", LOGS)
def test_a_log_cannot_be_added_to_changed_or_deleted_by_anybody(root: Client, model: type[Model]) -> None:
    fill(1)
    row = model._default_manager.earliest("pk")

    assert root.get(list_of(model) + "add/").status_code == 403
    assert root.post(page_of(row), {"outcome": "passed"}).status_code == 403
    assert root.post(page_of(row, "delete"), {"post": "yes"}).status_code == 403
    assert model._default_manager.filter(pk=row.pk).exists()


def test_who_may_view_sees_every_page_and_who_may_not_sees_none() -> None:
    fill(1)
    looking, stranger, anonymous = signed_in(viewer()), signed_in(staff()), Browser()

    for url in pages():
        assert 'name="_save"' not in read(looking, url)
        assert stranger.get(url).status_code == 403
        assert anonymous.get(url)["Location"].startswith(reverse("admin:login"))


def test_hostile_text_is_shown_and_never_run(root: Client) -> None:
    fill(1, text=HOSTILE)

    for url in pages():
        html = read(root, url)
        assert "<script>alert" not in html, url
        assert "alert(&#x27;x&#x27;)" in html, url
        assert INLINE.findall(html) == [], url
