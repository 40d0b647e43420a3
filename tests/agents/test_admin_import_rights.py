"""Imports in the console: who may see them, decide about them and read what went wrong."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents.models import Import
from tests.agents.transcripts.imports.uploading import file, lines, somebody, submit, upload, uploaded
from tests.console import list_of, page_of, plain, read, signed_in, staff, superuser, viewer

pytestmark = pytest.mark.django_db

TALK = lines(("Ada", "No."), ("Pat", "Is the ferry late?"))


@pytest.fixture
def olga() -> User:
    return somebody()


@pytest.fixture
def console(olga: User) -> Client:
    return signed_in(olga)


@pytest.mark.parametrize("act", ["choose", "cancel", "undo", "discard"])
def test_only_who_handed_it_in_decides_and_only_by_post(console: Client, olga: User, act: str) -> None:
    job = uploaded(file(TALK), user=olga)
    url = page_of(job).replace("change", act)

    assert console.get(url).status_code == 405
    for other in (staff(username="nobody"), viewer(), somebody(username="other")):
        assert signed_in(other).post(url).status_code in (403, 404)
    job.refresh_from_db()
    assert job.status == "waiting"


def test_what_others_uploaded_can_be_seen_but_not_decided(olga: User) -> None:
    job = uploaded(file(TALK), user=olga)
    html = read(signed_in(viewer()), page_of(job))
    assert "Is the ferry late?" in html
    assert "<form" not in html.split('class="pl-config"')[1]
    no_reader = signed_in(staff("agents.view_import", username="clerk"))
    assert "Is the ferry late?" not in read(no_reader, page_of(job))
    alone = signed_in(staff("agents.add_message", username="alone"))
    assert alone.get(page_of(job)).status_code == 404
    assert f"#{job.pk}" not in read(alone, list_of(Import))


def test_a_superuser_can_stop_what_somebody_else_began(olga: User) -> None:
    job = uploaded(file(TALK), user=olga)
    submit(job)
    root = signed_in(superuser())
    assert "Cancel" in read(root, page_of(job))
    assert "is cancelled" in root.post(page_of(job).replace("change", "cancel"), follow=True).content.decode()
    job.refresh_from_db()
    assert job.status == "cancelled"
    assert root.post(page_of(job).replace("change", "undo")).status_code == 403


def test_an_operator_is_told_what_goes_beyond_their_permissions() -> None:
    user = staff("agents.add_message", "agents.view_import", username="op")
    job = upload(signed_in(user), file(TALK))
    html = read(signed_in(user), page_of(job))

    assert "Not with your permissions: there is no channel" in plain(html)
    assert 'name="import"' not in html


def test_only_who_may_read_a_file_sees_errors_that_may_quote_it(console: Client) -> None:
    job = upload(console, file(TALK + '{"speaker": "Pat", "text"\n'))
    Import.objects.filter(pk=job.pk).update(error="line 3: 'the secret'")
    half = signed_in(staff("agents.view_import", username="half"))
    reader = signed_in(staff("agents.view_import", "agents.view_message", username="reader"))

    assert "the secret" in plain(read(console, page_of(job)))
    assert "the secret" in plain(read(reader, page_of(job)))
    told = plain(read(half, page_of(job)))
    assert "the secret" not in told
    assert "shown to the user who uploaded it" in told
