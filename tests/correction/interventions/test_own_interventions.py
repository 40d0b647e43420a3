"""A team's own functions and batches, direct messages, and how often interventions fire (AC-7.1.4, AC-7.1.11)."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import Client
from pytest_django import Settings

from agents.models import Agent, Channel
from correction.interventions.builtin import problems_of
from correction.interventions.models import Intervention, InterventionLog
from tests.console import list_of, page_of, plain, read
from tests.correction.interventions.steering import chatter, configure, entry_of, guidance, logs, prepared, row
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

OWN = "tests.correction.interventions.own_interventions."
DOCS = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "steer.md"


def named(settings: Settings, *functions: str, batches: tuple[str, ...] = ()) -> None:
    settings.INTERVENTION_FUNCTIONS = [OWN + name for name in functions]
    settings.INTERVENTION_BATCHES = [OWN + name for name in batches]


# -- functions of a team
def test_a_row_may_name_a_function_of_a_team_with_its_parameters(
    ada: Agent, office: Channel, settings: Settings
) -> None:
    named(settings, "asks_questions", "long_talk")
    row("questions", function="asks_questions", function_parameters={"at_least": 0.5}, window=3)
    row("talks", function="long_talk")
    for text in ("Why?", "When?", "Now."):
        say(office, "Zed", text)

    prepared(ada, office)

    assert [(log.name, log.fired, log.preconditions[0]["reasoning"]) for log in logs()] == [
        ("questions", True, "67% are questions"),
        ("talks", True, ""),
    ]


def test_unknown_functions_and_wrong_parameters_are_refused(settings: Settings) -> None:
    unknown = Intervention(slug="a", function="asks_questions", function_parameters={"at_least": 0.5}, nudge="Hi.")
    assert "'asks_questions' is not registered; allowed: " in problems_of(unknown)["function"]

    named(settings, "asks_questions", "long_talk")
    assert problems_of(unknown) == {}
    wrong = Intervention(slug="a", function="asks_questions", function_parameters={"at_least": 7}, nudge="Hi.")
    assert "at_least" in problems_of(wrong)["function_parameters"]
    superfluous = Intervention(slug="a", function="long_talk", function_parameters={"at_least": 7}, nudge="Hi.")
    assert "at_least" in problems_of(superfluous)["function_parameters"]


@pytest.mark.parametrize(
    ("setting", "path", "said"),
    [
        ("INTERVENTION_FUNCTIONS", "nowhere.at_all", "'nowhere.at_all' cannot be used: ModuleNotFound"),
        ("INTERVENTION_FUNCTIONS", OWN + "silence", "there is a function 'silence' already"),
        ("INTERVENTION_FUNCTIONS", OWN + "later", "it is an async function"),
        (
            "INTERVENTION_FUNCTIONS",
            OWN + "three_arguments",
            "its arguments are (context, one, two); allowed: (context), or",
        ),
        ("INTERVENTION_BATCHES", "nowhere.at_all", "INTERVENTION_BATCHES: 'nowhere.at_all' cannot be used"),
    ],
)
def test_a_path_that_cannot_be_used_is_said_by_manage_py_check(
    settings: Settings, setting: str, path: str, said: str
) -> None:
    setattr(settings, setting, [path])

    (error,) = [one for one in run_checks(tags=["plumbline"]) if one.id == "correction.E002"]

    assert said in error.msg


def test_the_form_offers_a_teams_functions_with_what_they_say_of_themselves(root: Client, settings: Settings) -> None:
    named(settings, "asks_questions")

    shown = plain(read(root, "/admin/interventions/intervention/add/"))

    assert "Share of the last messages that end with a question mark." in shown
    assert "at_least share of the last messages" in shown


# -- batches
def test_a_batch_is_evaluated_with_the_rows_for_its_agents_alone(office: Channel, settings: Settings) -> None:
    named(settings, batches=("batch",))
    ada, bob, cleo = (make_agent(slug) for slug in ("ada", "bob", "cleo"))
    row("quiet", function="silence", function_parameters={"at_least": 1})
    chatter(office)

    shown = {agent.slug: [section.body for section in guidance(prepared(agent, office))] for agent in (ada, bob, cleo)}

    assert shown == {
        "ada": ["Speak up.\n\nAda, come to an end."],
        "bob": ["Speak up.\n\nBob, come to an end."],
        "cleo": ["Speak up."],
    }


@pytest.mark.parametrize(
    ("batch", "name", "why"),
    [
        ("broken_batch", "broken_batch", "RuntimeError: no such table"),
        ("variety_batch", "variety", "'variety' is the name of another intervention"),
    ],
)
def test_an_unusable_batch_is_logged_and_harms_no_other_intervention(
    ada: Agent, office: Channel, settings: Settings, batch: str, name: str, why: str
) -> None:
    named(settings, batches=(batch,))
    row("talks", function="message_count", function_parameters={"at_least": 1, "of": "channel"})
    chatter(office)

    turn = prepared(ada, office)

    assert guidance(turn)[0].body == "Speak up."
    log = InterventionLog.objects.get(name=name)
    assert not log.fired
    assert why in log.why


def test_the_example_of_the_documentation_works(ada: Agent, office: Channel, settings: Settings) -> None:
    code = re.search(r'```python title="team/nudges.py"\n(.*?)```', DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    team = types.ModuleType("team_nudges")
    sys.modules[team.__name__] = team
    try:
        exec(compile(code[1], "team/nudges.py", "exec"), vars(team))  # noqa: S102 (our own documentation)
        settings.INTERVENTION_FUNCTIONS, settings.INTERVENTION_BATCHES = (
            ["team_nudges.money_talk"],
            ["team_nudges.support"],
        )
        row("prices", function="money_talk", function_parameters={"at_least": 2})
        mia = make_agent("mia")
        for text in ("What does it cost?", "Is there a refund?", "Hello?"):
            say(office, "Zed", text)

        prepared(ada, office)
        prepared(mia, office)
    finally:
        del sys.modules[team.__name__]

    assert [(log.agent, log.name, log.fired) for log in logs()] == [
        (ada, "prices", True),
        (mia, "prices", True),
        (mia, "unanswered", True),
    ]


# -- direct messages
def test_a_built_in_intervention_runs_in_direct_messages_where_allowed_ac_7_1_11(
    llm_server: LLMServer, ada: Agent
) -> None:
    dm = make_channel("dm-ada-zed", kind="dm")
    chatter(dm)
    configure(ada, anti_convergence_enabled=True, variety_intervention_enabled=True)
    assert entry_of(prepared(ada, dm)).why.startswith("direct message")

    configure(ada, anti_convergence_dm_allowed=True)
    prepared(ada, dm)

    assert [log.name for log in logs()] == ["anti_convergence"]


# -- how often they fire
def evaluated(name: str, number: int, **fields: Any) -> None:
    held = fields.pop("held", False)
    conditions = [{"kind": "functional", "text": "f", "held": held, "reasoning": "1 of 7"}]
    InterventionLog.objects.bulk_create(
        InterventionLog(**{"name": name, "fired": False, "why": "1 of 7", "preconditions": conditions, **fields})
        for _ in range(number)
    )


def test_the_page_of_an_intervention_counts_its_evaluations(root: Client) -> None:
    quiet = row("quiet", function="silence", function_parameters={"at_least": 1})
    evaluated("quiet", 4)
    evaluated("quiet", 3, held=True, judge="m")
    evaluated("quiet", 2, held=True, judge="m", fired=True)

    assert "quiet 9 5 5 2 " in plain(read(root, page_of(quiet)))
    built_in = plain(read(root, list_of(Intervention)))
    assert "anti_convergence 0 0 0 –" in built_in
    assert "variety 0 0 0 –" in built_in
