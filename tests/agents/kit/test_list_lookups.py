"""What the address of a list may ask: whole values, and what its filters offer; no part of a text that the list does not show."""

from __future__ import annotations

import pytest
from django.test import Client

from agents.alerts.models import Receiver
from correction.interventions.models import InterventionLog
from tests.console import in_group, list_of, page_of, signed_in
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
RECEIVERS = "/admin/alerts/receiver/"
AGENTS = "/admin/agents/agent/"


@pytest.fixture
def viewer() -> Client:
    return signed_in(in_group("Viewer"))


@pytest.mark.parametrize("test", ["startswith", "contains", "iendswith", "gt", "range", "regex"])
def test_a_viewer_cannot_ask_for_a_part_of_an_address_that_is_hidden(viewer: Client, test: str) -> None:
    Receiver.objects.create(name="Hook", channel="webhook", address="https://example.com/SECRET")
    assert viewer.get(f"{RECEIVERS}?address__{test}=https://example.com/SEC").status_code == 400
    assert "Hook" in viewer.get(RECEIVERS).content.decode()


@pytest.mark.parametrize("lookup", ["slug__regex", "max_turns__regex", "id__iregex", "system_prompt__iregex"])
def test_no_pattern_that_may_run_for_ever_is_matched(viewer: Client, lookup: str) -> None:
    make_agent()
    assert viewer.get(AGENTS, {lookup: "^(a|a)*$"}).status_code == 400


@pytest.mark.parametrize(
    "query", [f"id__in={10**30}", f"agent={10**30}", "created_at__gte=0001-01-01T00:00:00%2B14:00"]
)
def test_what_no_database_can_compare_with_is_refused(root: Client, query: str) -> None:
    log = InterventionLog.objects.create(name="variety", fired=False)

    assert root.get(f"{list_of(InterventionLog)}?{query}")["Location"].endswith("?e=1")
    assert root.get(f"{list_of(InterventionLog)}export/csv/?{query}").status_code == 400
    assert root.get(page_of(log), {"_changelist_filters": query}).status_code == 200


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5_000])
@pytest.mark.parametrize("page", ["agents/import", "debates/debate"])
def test_a_page_whose_number_no_row_can_have_is_not_there(root: Client, page: str, number: str) -> None:
    assert root.get(f"/admin/{page}/{number}/change/", follow=True).status_code == 404


def test_whole_values_and_numbers_may_be_asked_for(viewer: Client) -> None:
    make_agent("ada", display_name="Lovelace")
    for query in ("slug=ada", "slug__in=ada,bo", "slug__exact=ada", "pk__gte=1", "is_active__exact=1"):
        assert "Lovelace" in viewer.get(f"{AGENTS}?{query}").content.decode(), query
