"""A person with a browser finds every page of the API, also when something is wrong with what they ask."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.api_client import BASELINES, LABELS, PROPOSITIONS, RUNS
from tests.console import signed_in, superuser
from tests.evaluation.judged import make_baseline, make_run, make_score
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def page(client: Client, path: str, status: int = 200) -> str:
    response = client.get(path, HTTP_ACCEPT="text/html")
    assert (response.status_code, response["content-type"].split(";")[0]) == (status, "text/html"), path
    return response.content.decode()


def test_every_list_and_every_object_has_a_page_and_leads_to_others() -> None:
    ada = make_agent("ada")
    run = make_run(ada)
    make_score(run, 7)
    make_baseline(ada, run)
    client = signed_in(superuser())

    lists = (RUNS, BASELINES, PROPOSITIONS, LABELS, f"{RUNS}schedules/", f"{RUNS}alerts/", f"{RUNS}{run.pk}/scores/")
    for path in (*lists, f"{BASELINES}ada/"):
        page(client, path)
    assert f"{RUNS}{run.pk}/" in page(client, RUNS)
    assert f"{BASELINES}ada/compare/?run={run.pk}" in page(client, f"{RUNS}{run.pk}/")


@pytest.mark.parametrize("path", [RUNS, BASELINES, LABELS])
def test_a_form_offers_the_fields_of_the_request_not_those_of_the_answer(path: str) -> None:
    html = page(signed_in(superuser()), path)

    form = html[html.index('name="_content"') :]
    assert ("&quot;value&quot;" if path == LABELS else "&quot;dimensions&quot;") in form
    assert "overall_score" not in form
    assert "captured_at" not in form
