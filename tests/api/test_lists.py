"""Every list of the API: its filters, orders, pages, and what it costs the database."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from django.db.models import BooleanField, CharField, Model, Q
from django.test.utils import CaptureQueriesContext
from django.urls import resolve
from django.utils import timezone

from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Run
from correction.interventions.models import InterventionLog
from tests.api_client import Program, listed, paged, program, queries, refused
from tests.console import superuser, viewer
from tests.correction.judged_drafts import add_attempt
from tests.factories import make_agent, make_channel, say, talk
from tests.listed_rows import MAKERS, people

pytestmark = [pytest.mark.databases_differ, pytest.mark.django_db]

BY_TIME, BY_ID = "-created_at, created_at", "-id, id"
LISTS = {  # the model of its rows, and its orders
    "agents/": ("agents.agent", "display_name, slug, -created_at, -updated_at"),
    "channels/": ("agents.channel", "name, slug, -created_at"),
    "messages/": ("agents.message", BY_ID),
    "channels/office/messages/": ("", "-position, position"),
    "runs/": ("agents.run", BY_TIME),
    "agents/ada/turns/": ("", BY_TIME),
    "llm-calls/": ("kit.llmcall", BY_TIME),
    "debates/": ("debates.debate", BY_ID),
    "evaluations/": ("evaluation.evaluationrun", BY_ID),
    "evaluations/baselines/": ("change.baseline", ""),
    "evaluations/labels/": ("", BY_ID),
    "evaluations/schedules/": ("evaluation.evaluationschedule", "name, next_at, -created_at"),
    "evaluations/alerts/": ("change.driftalert", BY_ID),
    "evaluations/correction-logs/": ("correction.correctionlog", BY_TIME),
    "evaluations/interventions/": ("interventions.intervention", "slug, -updated_at"),
    "evaluations/intervention-logs/": ("interventions.interventionlog", BY_TIME),
    "evaluations/config/": ("correction.agentevaluationconfig", ""),
    "alerts/": ("alerts.alert", BY_ID),
    "experiments/": ("experiments.experiment", BY_ID),
    "behavior-requests/": ("behavior.behaviorrequest", BY_TIME),
}
NUMBERED = ("agents/", "channels/", "evaluations/baselines/", "evaluations/config/")  # the others go by cursor
LOGS = ("messages/", "channels/office/messages/", "runs/", "agents/ada/turns/", "agents/ada/versions/", "llm-calls/",
        "debates/", "evaluations/", "evaluations/correction-logs/", "evaluations/intervention-logs/", "behavior-requests/")  # fmt: skip
CURSORS = ("p=%00", "p=abc", "p=" + "9" * 40, "p=" + "9" * 4301, "p=0001-01-01T00:00:00%2B23:59", "o=-5", "r=1&p=5")
ONES = ("messages/{}/", "debates/{}/", "debates/{}/export/", "runs/{}/", "runs/{}/trace/", "llm-calls/{}/", "agents/ada/versions/{}/",
        "evaluations/{}/", "evaluations/{}/scores/", "evaluations/correction-logs/{}/", "evaluations/intervention-logs/{}/",
        "behavior-requests/{}/")  # fmt: skip
WRONG = [  # query, parameter, sentence
    ("agents/?is_active=1", "is_active", "is_active '1': allowed: true, false"),
    ("agents/?channel=nowhere", "channel", "there is no channel 'nowhere'; channels: office"),
    ("messages/?user=mallory", "user", "user 'mallory': allowed: the name of a user"),
    ("messages/?tag=1%27st=x", "tag", "allowed: KEY=VALUE"),
    ("messages/?since=monday", "since", "since 'monday': allowed: a date or time"),
    ("messages/?until=9999-12-31T23:59:59-23:59", "until", "allowed: a date or time"),
    ("messages/?search=paper", "search", "allowed: with one of channel, agent, since"),
    ("channels/office/messages/?after=-1", "after", "after '-1': allowed: a position, a number from 0"),
    ("runs/?status=odd", "status", "status 'odd': allowed: pending"),
    ("llm-calls/?run=99999999999999999999", "run", "allowed: the id of a run"),
    ("evaluations/?procedure=hard", "procedure", "procedure 'hard': allowed: plumbline or tinytroupe, then [+hard]"),
    ("evaluations/?colour=red", "colour", "there is no parameter 'colour'; allowed: since, until, agent, channel, dimension"),
    ("evaluations/propositions/?level=both", "level", "allowed: evaluation, action"),
    ("evaluations/baselines/ada/compare/?margin=nan", "margin", "margin 'nan': allowed: points above 0, at most 9"),
    ("evaluations/baselines/ada/compare/?judge=x", "judge", "there is no parameter 'judge'; allowed: run, margin"),
    ("evaluations/correction-logs/?session=7", "session", "allowed: a UUID"),
    ("transcripts/", "channel", "channel is missing; allowed: the slug of a channel"),
]  # fmt: skip


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def office() -> Channel:
    return make_channel("office")


@pytest.fixture(autouse=True)
def ada(office: Channel) -> Agent:
    agent = make_agent("ada")
    office.memberships.create(agent=agent)
    return agent


@pytest.mark.parametrize("route", [route for route, (model, _) in LISTS.items() if model])
def test_a_list_asks_as_often_for_twelve_rows_as_for_three(client: Program, route: str) -> None:
    label, cast = LISTS[route][0], people()
    MAKERS[label](cast, 0, 3)
    few = queries(client, f"/api/{route}?page_size=500")
    MAKERS[label](cast, 3, 9)

    assert queries(client, f"/api/{route}?page_size=500") == few <= 9


# What no field of a row shows as it is asked for; tests of their own ask for most of it.
NO_FIELD = {"search", "tag", "ordering", "since", "until", "acknowledged", "trait", "message", "session", "mechanism"}
NO_FIELD_OF = {
    "agents/": {"channel"}, "channels/": {"agent"}, "debates/": {"agent"}, "evaluations/": {"dimension", "procedure"},
    "evaluations/correction-logs/": {"dimension"}, "evaluations/interventions/": {"agent"},
    "evaluations/intervention-logs/": {"intervention"},
}  # fmt: skip


OTHERS = {"procedure": "tinytroupe", "dimension": "fluency", "mode": "socratic", "exit_reason": "max_rounds"}


def other_values(model: type[Model], name: str, *, of: int) -> None:
    """Give each so many-th row another value in this column, where the table has it and may have that."""
    field = next((field for field in model._meta.concrete_fields if field.name == name), None)
    if isinstance(field, BooleanField | CharField):
        rows = model._default_manager.filter(pk__in=list(model._default_manager.values_list("pk", flat=True))[::of])
        other = OTHERS.get(name) or (field.choices[-1][0] if field.choices else "another")
        with suppress(IntegrityError), transaction.atomic():
            rows.update(**{name: ~Q(**{name: True}) if isinstance(field, BooleanField) else other})


@pytest.mark.parametrize(
    "route", [route for route, (model, _) in LISTS.items() if model and route != "evaluations/config/"]
)
def test_a_filter_leaves_the_rows_that_have_the_value(client: Program, route: str) -> None:
    label = LISTS[route][0]
    MAKERS[label](people(), 0, 12)
    view: Any = resolve(f"/api/{route}").func
    filters = view.cls.filterset_class.base_filters
    for number, name in enumerate(filters):
        other_values(apps.get_model(label), name, of=2 + number % 3)
    rows = client.get(f"/api/{route}?page_size=500").json()["results"]

    for name in set(filters) - NO_FIELD - NO_FIELD_OF.get(route, set()):
        assert rows[0].keys() >= {name}, name
        for value in {row[name] for row in rows} - {None, ""}:
            asked = str(value).lower() if isinstance(value, bool) else quote(str(value))
            assert client.get(f"/api/{route}?page_size=500&{name}={asked}").json()["results"] == [
                row for row in rows if row[name] == value
            ], (name, value)
    if "since" in filters:
        column = "sent_at" if route == "messages/" else "created_at"
        moments = sorted(row[column] for row in rows)
        early, late = moments[len(rows) // 4], moments[-len(rows) // 4]
        narrow = listed(client, f"/api/{route}?page_size=500&since={quote(early)}&until={quote(late)}")
        assert sorted(narrow) == sorted(row["id"] for row in rows if early <= row[column] < late)


def test_an_order_or_parameter_unknown_to_a_list_is_a_400(client: Program) -> None:
    for route, (_, orders) in LISTS.items():
        refusal = refused(client.get(f"/api/{route}?ordering=cost"))["ordering"][0]
        assert refusal == f"ordering 'cost': allowed: {orders}" if orders else "there is no parameter" in refusal, route
        for order in orders.split(", ") if orders else ():
            assert client.get(f"/api/{route}?ordering={order}").status_code == 200, (route, order)
        unknown = refused(client.get(f"/api/{route}?no_such=1"))["no_such"][0]
        assert "there is no parameter 'no_such'" in unknown, route


def test_a_filter_not_understood_is_a_400_that_says_what_is(client: Program) -> None:
    for query, name, sentence in WRONG:
        assert sentence in refused(client.get(f"/api/{query}"))[name][0], query


def test_numbers_and_pages_that_nothing_has_are_not_found(client: Program) -> None:
    for path in ONES:
        for number in ("99999", str(2**63), "9" * 5000):
            assert client.get(f"/api/{path.format(number)}").status_code == 404, (path, number)
    for path in NUMBERED:
        for page in ("0", "x", "9" * 5000):
            assert client.get(f"/api/{path}?page={page}").status_code == 404, (path, page[:9])


def test_a_cursor_that_no_answer_had_is_a_400(client: Program) -> None:
    cursors = (*(b64encode(cursor.encode()).decode() for cursor in CURSORS), "abc", "%00", "é")
    for path in LOGS:
        for cursor in cursors:
            answer = client.get(f"/api/{path}?cursor={quote(cursor)}")
            if answer.status_code == 200:  # numbers are no times, and the other way round
                continue
            refusal = refused(answer)["cursor"][0]
            assert "allowed: as the `next` and `previous` of an answer have it" in refusal, (path, cursor)
        assert "cursor 'abc':" in refused(client.get(f"/api/{path}?cursor=abc"))["cursor"][0], path


def test_a_page_size_is_1_to_500_and_any_other_a_400(client: Program) -> None:
    for path in (*LISTS, "agents/ada/versions/"):
        for size in ("500", ""):
            assert client.get(f"/api/{path}?page_size={size}").status_code == 200, path
        for size in ("501", "0", "x", "٣"):
            refusal = refused(client.get(f"/api/{path}?page_size={size}"))["page_size"][0]
            assert refusal == f"page_size {size!r}: allowed: a whole number from 1 to 500", path


def test_viewers_read_every_list() -> None:
    reader = program(viewer())
    for route in (*LISTS, "evaluations/propositions/"):
        assert reader.get(f"/api/{route}").status_code == 200, route


# -- orders
def calls(agent: Agent) -> Iterator[int]:
    """Three, whose times go against their ids."""
    for hours in (1, 2, 3):
        call = LLMCall.objects.create(
            agent=agent, role="judge", purpose="gate", provider="anthropic", model="m", status="ok"
        )
        LLMCall.objects.filter(pk=call.pk).update(created_at=timezone.now() - timedelta(hours=hours))
        yield call.pk


def test_calls_of_an_agent_go_by_time_in_pages_and_both_directions(client: Program, ada: Agent) -> None:
    newest, middle, oldest = calls(ada)

    assert paged(client, "/api/llm-calls/?agent=ada&page_size=1") == [newest, middle, oldest]
    assert paged(client, "/api/llm-calls/?agent=ada&page_size=1&ordering=created_at") == [oldest, middle, newest]
    assert paged(client, "/api/llm-calls/?page_size=1") == [oldest, middle, newest]  # by id, which needs no sorting
    by_time = client.get("/api/llm-calls/?agent=ada&page_size=1").json()["next"]
    assert "cursor" in refused(client.get(by_time.replace("agent=ada&", ""))), "a cursor of another order"


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("llm-calls/?agent=ada", '"created_at" DESC, "llm_calls"."id" DESC'),
        ("llm-calls/", 'ORDER BY "llm_calls"."id" DESC'),
        ("runs/?status=failed", '"created_at" DESC, "runs"."id" DESC'),
        ("runs/", 'ORDER BY "runs"."id" DESC'),
        ("messages/?agent=ada&since=2026-11-01", '"sent_at" DESC, "messages"."id" DESC'),
        ("messages/?agent=ada", 'ORDER BY "messages"."id" DESC'),
        ("messages/?channel=office", 'ORDER BY "messages"."position" DESC'),
        ("evaluations/intervention-logs/?agent=ada", '"created_at" DESC'),
    ],
)
def test_a_list_is_asked_for_in_the_order_of_an_index(client: Program, query: str, clause: str) -> None:
    with CaptureQueriesContext(connection) as seen:
        assert client.get(f"/api/{query}").status_code == 200

    assert any(clause in one["sql"] for one in seen), [one["sql"] for one in seen][-1]


def test_messages_of_an_agent_in_a_time_are_ordered_by_when_said(client: Program, ada: Agent, office: Channel) -> None:
    one, two, three = talk(ada, ["a", "b", "c"])
    late = say(office, ada, "imported later, said before", sent_at=one.sent_at - timedelta(hours=1))  # type: ignore[operator]

    asked = "/api/messages/?agent=ada&since=2026-11-01&page_size=1"
    assert paged(client, asked) == [three.pk, two.pk, one.pk, late.pk]
    assert paged(client, f"{asked}&ordering=id") == [late.pk, one.pk, two.pk, three.pk]


def test_pages_follow_each_other_without_gap_or_repetition_while_rows_are_added(client: Program, ada: Agent) -> None:
    said = [message.pk for message in talk(ada, ["a", "b", "c", "d", "e"])]
    first = client.get("/api/messages/?page_size=2").json()
    talk(ada, ["f"])

    assert [row["id"] for row in first["results"]] + paged(client, first["next"]) == said[::-1]


def test_logs_are_read_from_the_first_on(client: Program, ada: Agent, office: Channel) -> None:
    runs = [Run.objects.create(agent=ada, channel=office, status="completed").pk for _ in range(3)]
    logs = [InterventionLog.objects.create(agent=ada, channel=office, name="variety", fired=False).pk for _ in range(3)]
    attempts = [add_attempt(agent=ada, attempt=n).pk for n in (1, 2, 3)]

    assert paged(client, "/api/runs/?ordering=created_at&page_size=2") == runs
    assert paged(client, "/api/runs/?ordering=created_at&status=completed&page_size=2") == runs
    assert listed(client, "/api/runs/?ordering=-created_at") == runs[::-1]
    assert paged(client, "/api/evaluations/intervention-logs/?ordering=created_at&page_size=2") == logs
    assert paged(client, "/api/evaluations/correction-logs/?ordering=created_at&page_size=2") == attempts
