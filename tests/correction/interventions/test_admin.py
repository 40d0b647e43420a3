"""Interventions that operators write in the console, and the log of every one that was looked at."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents.models import Run
from correction.interventions.models import Intervention, InterventionLog
from tests.api_client import program
from tests.console import HOSTILE, figures, list_of, page_of, plain, read, row_about, signed_in, staff, tab_of
from tests.evaluation.judged import cells
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db

ADD = reverse("admin:interventions_intervention_add")
GOOD = {
    "slug": "too-quiet", "is_enabled": "on", "window": "10", "cooldown_messages": "5", "function": "silence",
    "function_parameters": '{"at_least": 4}', "nudge": "{{agent_name}}, say something.",
}  # fmt: skip


def write(client: Client, **changes: str) -> Any:
    return client.post(ADD, {key: value for key, value in {**GOOD, **changes}.items() if value})


def make_intervention_log(**fields: Any) -> InterventionLog:
    defaults = {"name": "variety", "fired": True, "why": "seven messages", "nudge": "Something new, please."}
    return InterventionLog.objects.create(**{**defaults, **fields})


def test_an_intervention_is_written_and_listed(root: Client) -> None:
    ada = make_agent()
    answer = write(root, agents=str(ada.pk), dm_allowed="on", textual_claim="{{agent_name}} is bored")

    assert answer.status_code == 302, plain(answer.content.decode())
    row = Intervention.objects.get()
    assert (row.function, row.function_parameters, list(row.agents.all())) == ("silence", {"at_least": 4}, [ada])
    html = read(root, list_of(Intervention))
    assert cells(html, "function") == ["silence"]
    assert [unescape(cell) for cell in cells(html, "textual_claim")] == ["{{agent_name}} is bored"]
    assert cells(html, "reach") == ["Ada also in direct messages"]
    assert cells(html, "is_enabled") == ["yes"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"function": "nonsense"}, "Select a valid choice"),
        ({"function_parameters": '{"at_least": 0}'}, "silence: at_least:"),
        ({"function_parameters": "{"}, "Enter a valid JSON"),
        ({"function": "", "textual_claim": "x", "function_parameters": '{"at_least": NaN}'}, "Numbers must be finite"),
        ({"function": "mentions", "function_parameters": '{"phrases": ["\\ud800"]}'}, "half a character"),
        ({"function": "mentions", "function_parameters": '{"phrases": ["a\\u0000"]}'}, "NUL"),
        ({"function": "mentions", "function_parameters": '{"phrases": ["/(?:a{99}){99}/"]}'}, "is too large"),
        ({"function": "", "function_parameters": ""}, "Give at least one precondition"),
        ({"nudge": ""}, "give a nudge, or the kind of one"),
        ({"proposition_claim": "It is dull", "proposition_threshold": "9.5"}, "less than or equal to 9"),
        ({"window": "101"}, "less than or equal to 100"),
    ],
)
def test_what_cannot_be_used_is_said_beside_the_field(root: Client, typed: dict[str, str], said: str) -> None:
    answer = write(root, **typed)

    assert answer.status_code == 200
    assert said in plain(answer.content.decode())
    assert not Intervention.objects.exists()


def test_a_function_that_is_gone_is_shown_and_refused(root: Client) -> None:
    row = Intervention.objects.create(slug="old", function="was_removed", nudge="Go on.")
    assert "was_removed (not known)" in plain(read(root, page_of(row)))
    answer = root.post(page_of(row), {**GOOD, "function": "was_removed"})

    assert "function 'was_removed' is not registered" in plain(answer.content.decode())


def test_an_evaluation_shows_each_precondition_and_why(root: Client) -> None:
    ada, channel = make_agent(), make_channel()
    run = Run.objects.create(agent=ada, channel=channel)
    got = [
        {
            "kind": "functional",
            "text": "message_count(at_least=7)",
            "held": True,
            "reasoning": "9 messages",
            "score": 9,
        },
        {"kind": "propositional", "text": "It is new", "held": False, "score": 6.0, "threshold": 4.0, "judge": "m"},
        {"kind": "textual", "text": "It is dull", "held": None, "reasoning": "not asked"},
        "not an entry",
    ]
    log = make_intervention_log(
        fired=False, why="the proposition scored 6", agent=ada, channel=channel, run=run, preconditions=got
    )
    html = read(root, page_of(log))
    text = plain(html)

    counted = row_about(html, "functional", "message_count(at_least=7)")
    assert "holds" in counted
    assert "9 messages" in counted
    assert figures(counted) == ["7", "9", "9"]
    judged = row_about(html, "propositional", "It is new")
    assert "does not hold" in judged
    assert figures(judged) == ["4.0", "6"]
    assert "not asked" in row_about(html, "textual", "It is dull")
    assert "the proposition scored 6" in text
    assert "built in" in text
    assert page_of(run) in html
    assert f"work_id=intervention%3A{log.key}" in html


def test_the_log_is_filtered_and_counts_how_often_something_fired(root: Client) -> None:
    ada = make_agent()
    row = Intervention.objects.create(
        slug="quiet", function="silence", function_parameters={"at_least": 3}, nudge="Go."
    )
    make_intervention_log(name="quiet", intervention=row, agent=ada)
    make_intervention_log(name="quiet", intervention=row, fired=False)
    make_intervention_log()

    def got(query: str) -> list[str]:
        return cells(read(root, list_of(InterventionLog, query)), "fired_mark")

    assert got("?fired__exact=0") == ["did not fire"]
    assert got("?name=variety") == ["fired"]
    assert got(f"?agent__id__exact={ada.pk}") == ["fired"]
    assert got(f"?intervention={row.pk}") == ["did not fire", "fired"]
    assert re.search(r"quiet 2 \d+ \d+ 1 ", plain(read(root, page_of(row))))


def test_a_turn_names_the_interventions_that_were_looked_at(root: Client) -> None:
    run = Run.objects.create(agent=make_agent(), channel=make_channel())
    InterventionLog.objects.create(name="variety", run=run, fired=True, nudge=f"Say something new. {HOSTILE}")
    InterventionLog.objects.create(name="anti_convergence", run=run, fired=False, why="they do not agree")
    html = read(root, page_of(run))

    assert "Interventions" in plain(html)
    assert "did not fire" not in row_about(html, "variety", "fired", "Say something new.")
    assert "did not fire" in row_about(html, "anti convergence", "they do not agree")
    assert "<script>alert" not in html
    half = signed_in(staff("agents.view_run", "correction.view_correctionlog"))
    assert "they do not agree" not in read(half, page_of(run))


def test_without_the_right_to_messages_reasons_are_left_out() -> None:
    run = Run.objects.create(agent=make_agent(), channel=make_channel())
    quotes = [{"kind": "functional", "text": "says a secret", "held": True, "reasoning": "a secret"}]
    log = InterventionLog.objects.create(name="variety", run=run, fired=False, why="a secret", preconditions=quotes)
    user = staff("agents.view_run", "interventions.view_interventionlog", "interventions.view_intervention")
    visitor = signed_in(user)

    for url in (list_of(InterventionLog), list_of(Intervention), page_of(log), page_of(run)):
        assert "secret" not in read(visitor, url)
    for route in ("", f"{log.pk}/"):
        answer = program(user).get(f"/api/evaluations/intervention-logs/{route}")
        assert (answer.status_code, "secret" in answer.content.decode()) == (200, False)


def test_the_agents_page_lists_its_last_nudges_for_those_permitted(root: Client) -> None:
    ada = make_agent()
    assert "No nudge was given lately." in plain(read(root, tab_of(ada, "gate")))
    for number in range(8):
        nudge = f"Say something new, {number}."
        InterventionLog.objects.create(name="variety", agent=ada, fired=True, nudge=nudge, why="7 messages")
    InterventionLog.objects.create(name="variety", agent=ada, fired=False, nudge="Not shown.", why="2 messages")
    shown = plain(read(root, tab_of(ada, "gate")))

    assert re.findall(r"Say something new, (\d)", shown) == ["7", "6", "5", "4", "3"]
    assert "Not shown." not in shown
    assert "Last nudges" not in read(signed_in(staff("agents.view_agent")), tab_of(ada, "gate"))
