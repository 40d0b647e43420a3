"""Every log as a file: what the filters leave, for whoever may view it, safe to open."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.kit.console import logs
from agents.kit.models import LLMCall
from agents.kit.registry import tables
from agents.models import Message
from tests.console import Browser, list_of, plain, read, signed_in, staff, viewer
from tests.factories import make_agent, make_channel, say
from tests.listed_rows import MAKERS, people

pytestmark = pytest.mark.django_db

LOGS = sorted(model._meta.label_lower for model, table in tables().items() if table.export is not None)


def url_of(label: str, form: str, query: str = "") -> str:
    return reverse(f"admin:{label.replace('.', '_')}_export", args=[form]) + query


def exported(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, f"{url} answered {answer.status_code}"
    return b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]


def as_rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def call(**fields: Any) -> LLMCall:
    defaults = {"role": "judge", "purpose": "gate", "provider": "anthropic", "model": "m", "status": "ok"}
    return LLMCall.objects.create(**{**defaults, **fields})


@pytest.mark.parametrize("label", LOGS)
def test_both_forms_hold_the_same_rows_in_a_constant_number_of_queries(root: Client, label: str) -> None:
    cast = people()

    def asked() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as captured:
            table = list(csv.DictReader(io.StringIO(exported(root, url_of(label, "csv")))))
        rows = as_rows(exported(root, url_of(label, "jsonl")))
        assert [list(row) for row in rows] == [list(row) for row in table]
        return len(rows), len(captured)

    MAKERS[label](cast, 0, 3)
    exported(root, url_of(label, "csv"))  # permissions are read once
    few, queries = asked()
    MAKERS[label](cast, 3, 9)
    many, more_queries = asked()

    assert many == apps.get_model(label)._default_manager.count() >= few + 9
    assert more_queries == queries


def test_the_filters_and_the_search_of_the_list_hold_for_the_file(root: Client) -> None:
    ada, bob, channel = make_agent(), make_agent("bob"), make_channel()
    say(channel, ada, "About apples.", tags={"build": "41"})
    say(channel, ada, "About pears.", tags={"build": "42"})
    say(channel, bob, "About apples, too.")
    query = f"?agent__id__exact={ada.pk}&position__lte=9&tag=build%3D41&q=apples&o=1&p=1"
    html = read(root, list_of(Message, query))
    (row,) = as_rows(exported(root, url_of("agents.message", "jsonl", query)))

    assert (row["text"], row["agent"], row["channel"], row["position"]) == ("About apples.", "ada", "office", 1)
    assert row["tags"] == {"build": "41"}
    links = [part.split('"')[0].replace("&amp;", "&") for part in html.split('href="')[1:] if "/export/" in part]
    assert [link.split("?")[0] for link in links] == [url_of("agents.message", form) for form in ("csv", "jsonl")]
    assert {"o=1", "p=1"}.isdisjoint(re.split(r"[?&]", links[1]))
    assert "position__lte=9" in links[1], "a filter whose name begins like a page's number"
    assert as_rows(exported(root, links[1])) == [row]


def test_no_cell_is_run_as_a_formula_and_numbers_stay_numbers(root: Client) -> None:
    call(error="=HYPERLINK('x')", model="+m", cost_usd=Decimal("0.00000123"), input_tokens=0, latency_ms=7)
    (table,) = csv.DictReader(io.StringIO(exported(root, url_of("kit.llmcall", "csv"))))

    assert (table["error"], table["model"]) == ("'=HYPERLINK('x')", "'+m")
    assert (table["cost_usd"], table["input_tokens"], table["output_tokens"]) == ("0.00000123", "0", "")
    (row,) = as_rows(exported(root, url_of("kit.llmcall", "jsonl")))
    assert (row["error"], row["input_tokens"], row["output_tokens"]) == ("=HYPERLINK('x')", 0, None)


def test_a_file_has_the_newest_rows_as_many_as_the_page_says(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_ROWS", 3)
    for number in range(5):
        call(work_id=f"evaluation_run:{number}")

    rows = as_rows(exported(root, url_of("kit.llmcall", "jsonl")))
    assert [row["work_id"] for row in rows] == [f"evaluation_run:{number}" for number in (4, 3, 2)]
    assert "Export the newest 3 as" in " ".join(read(root, list_of(LLMCall)).replace("</span>", "").split())


def test_who_may_view_the_log_may_have_it_and_nobody_else() -> None:
    call()
    half = signed_in(staff("agents.view_message"))

    for label in LOGS:
        assert signed_in(viewer(label)).get(url_of(label, "csv")).status_code == 200
        assert Browser().get(url_of(label, "csv"))["Location"].startswith(reverse("admin:login"))
    assert half.get(url_of("agents.message", "csv")).status_code == 200
    assert half.get(url_of("kit.llmcall", "csv")).status_code == 403


def test_what_cannot_be_asked_for_is_refused(root: Client) -> None:
    assert root.post(url_of("kit.llmcall", "csv")).status_code == 405
    assert root.get(url_of("kit.llmcall", "xlsx")).status_code == 404
    for query in ("?agent__id__exact=x", "?nonsense=1", "?purpose=%00", "?created_at__gte=never"):
        assert root.get(url_of("kit.llmcall", "csv", query)).status_code == 400, query


QUOTING = {
    "agents.run": {"trace"},
    "correction.correctionlog": {"original_text", "judged_text", "said", "feedback", "payload", "adherence_reasoning"},
    "correction.observedmessage": {"text"},
    "interventions.interventionlog": {"why", "preconditions"},
    "evaluation.evaluationscore": {"text", "compared_text", "reasoning", "justification", "flaws", "reason"},
}


@pytest.mark.parametrize("label", sorted(QUOTING))
def test_exports_leave_out_columns_quoting_messages_the_user_may_not_view(label: str) -> None:
    MAKERS[label](people(), 0, 2)
    app, model = label.split(".")
    half, whole = signed_in(staff(f"{app}.view_{model}")), signed_in(viewer())

    for form in ("csv", "jsonl"):
        told = [exported(client, url_of(label, form)) for client in (half, whole)]
        few, all_of_them = (
            set(next(csv.reader(io.StringIO(text))) if form == "csv" else as_rows(text)[0]) for text in told
        )
        assert all_of_them >= QUOTING[label]
        assert not few & QUOTING[label]
        assert few
        left_out = ", ".join(sorted(all_of_them - few))
        assert f"without {left_out}: you may not view messages" in plain(read(half, list_of(apps.get_model(label))))
