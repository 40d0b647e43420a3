"""Swarms that could not work are refused with the field and what is allowed, and nothing is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.kit.refusals import Refused
from agents.swarm.assign import MOST_PHASES, SwarmRefused, SwarmRequest, assign_swarms, save_phase, save_swarm
from agents.swarm.food import ensure_food_swarms
from agents.swarm.intents import INTENTS, intent_of, intents, register_intent, swarms_for
from agents.swarm.models import Swarm, SwarmPhase
from tests.api_client import program, refused
from tests.console import signed_in, superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
PHASE: dict[str, Any] = {"name": "voice", "phase": "pre", "order": 1, "prompt": "Say how the person talks."}
GOOD: dict[str, Any] = {"name": "personality", "intents": ["general"], "tools": ["log"], "phases": [PHASE]}
# Changes of a good swarm, the field that is named, and what the sentence says.
CASES: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"intents": ["small_talk"]}, "intents", ("'small_talk'", "general", "food_log", "kpi_remaining")),
    ({"intents": ["general", "general"]}, "intents", ("twice",)),
    ({"intents": []}, "intents", ("at least 1",)),
    ({"tools": ["hammer"]}, "tools", ("'hammer'", "look_up", "log")),
    ({"post_executor": "twice"}, "post_executor", ("'twice'", "combined", "sequential", "off")),
    ({"name": "two words"}, "name", ("'two words'",)),
    ({"name": "taken"}, "name", ("in use",)),
    ({"colour": "red"}, "colour", ("post_executor",)),
    ({"phases": [{**PHASE, "phase": "middle"}]}, "phases[0].phase", ("'middle'", "pre", "main", "post")),
    ({"phases": [{**PHASE, "temperature": 3}]}, "phases[0].temperature", ("3", "less than or equal to 2")),
    ({"phases": [{**PHASE, "temperature": float("nan")}]}, "phases[0].temperature", ("nan", "finite")),
    ({"phases": [{**PHASE, "prompt": "  "}]}, "phases[0].prompt", ("at least 1",)),
    ({"phases": [{**PHASE, "mood": "good"}]}, "phases[0].mood", ("temperature",)),
    ({"phases": [PHASE, PHASE]}, "phases.name", ("'voice'", "twice")),
    ({"phases": [{**PHASE, "order": 0}]}, "phases[0].order", ("greater than or equal to 1",)),
    ({"phases": [{name: value for name, value in PHASE.items() if name != "phase"}]}, "phases[0].phase", ("missing",)),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field", "says"), CASES)
def test_a_swarm_that_could_not_work_is_refused(change: dict[str, Any], field: str, says: tuple[str, ...]) -> None:
    Swarm.objects.create(name="taken", intents=["food_log"])

    with pytest.raises(Refused) as refused:
        save_swarm({**GOOD, **change})

    [(named, sentence)] = refused.value.errors.items()
    assert named == field
    assert all(part in sentence for part in says), sentence
    assert "allowed:" in sentence or "is missing" in sentence
    assert (Swarm.objects.count(), SwarmPhase.objects.count()) == (1, 0)


@pytest.mark.parametrize(("change", "field", "says"), [CASES[0], CASES[6]])
def test_page_and_route_refuse_the_same_field_of_a_swarm(
    change: dict[str, Any], field: str, says: tuple[str, ...]
) -> None:
    Swarm.objects.create(name="taken", intents=["food_log"])
    asked, user = {**GOOD, **change}, superuser()
    typed = {name: json.dumps(value) if isinstance(value, list) else value for name, value in asked.items()}
    typed |= {"post_executor": asked.get("post_executor", "combined")}

    by_route = refused(program(user).post("/api/swarms/", asked))
    page = signed_in(user).post("/admin/swarm/swarm/add/", typed)

    assert all(part in by_route[field][0] for part in says), by_route
    assert list(page.context["adminform"].form.errors) == [field]
    assert Swarm.objects.count() == 1


def test_the_help_of_fields_is_the_same_on_page_and_route() -> None:
    form = signed_in(superuser()).get("/admin/swarm/swarm/add/").context["adminform"].form
    fields = {name: field.description for name, field in SwarmRequest.model_fields.items() if name != "phases"}

    assert {name: form.fields[name].help_text for name in fields} == fields


def test_only_a_phase_whose_prompt_changes_gets_its_next_version() -> None:
    other = {**PHASE, "name": "core", "phase": "main"}
    swarm = save_swarm({**GOOD, "phases": [PHASE, other, {**PHASE, "name": "gone"}]})

    save_swarm({**GOOD, "phases": [{**PHASE, "prompt": "Say it shortly."}, {**other, "enabled": False}]}, swarm=swarm)

    assert {phase.name: phase.version for phase in swarm.phases.all()} == {"voice": 2, "core": 1}
    assert not swarm.phases.get(name="core").enabled


def test_a_phase_without_a_temperature_gets_that_of_its_kind() -> None:
    polisher = {**PHASE, "name": "brevity", "phase": "post"}
    swarm = save_swarm({**GOOD, "phases": [PHASE, polisher, {**polisher, "name": "bold", "temperature": 1}]})

    assert dict(swarm.phases.values_list("name", "temperature")) == {"voice": 0.55, "brevity": 0.4, "bold": 1.0}


def test_what_stays_the_same_leaves_no_entry_in_the_history() -> None:
    swarm = save_swarm(GOOD)

    save_swarm({**GOOD, "enabled": False}, swarm=swarm)
    save_swarm({**GOOD, "phases": [{**PHASE, "order": 2}]}, swarm=swarm)

    history: Any = SwarmPhase.history
    assert list(history.order_by("history_id").values_list("order", "version")) == [(1, 1), (2, 1)]


def test_one_phase_is_saved_without_the_others() -> None:
    swarm = save_swarm(GOOD)
    voice = swarm.phases.get()

    core = save_phase({**PHASE, "name": "core", "phase": "main"}, swarm=swarm)
    save_phase({**PHASE, "prompt": "Say it shortly."}, swarm=swarm, phase=voice)

    assert [(phase.name, phase.version) for phase in swarm.phases.all()] == [("voice", 2), ("core", 1)]
    with pytest.raises(SwarmRefused, match="name: 'voice' is in use; allowed: another name"):
        save_phase(PHASE, swarm=swarm, phase=core)
    for number in range(MOST_PHASES - 2):
        swarm.phases.create(name=f"more-{number}", phase="post", order=number, prompt="Be brief.")
    with pytest.raises(SwarmRefused, match=f"at most {MOST_PHASES}"):
        save_phase({**PHASE, "name": "one-more"}, swarm=swarm)


def test_two_swarms_for_one_intent_of_an_agent_are_refused() -> None:
    agent = make_agent()
    first, second = save_swarm(GOOD), save_swarm({**GOOD, "name": "other"})
    meals = save_swarm({**GOOD, "name": "meals", "intents": ["food_log", "food_undo"]})
    assign_swarms(agent=agent, swarms=[first, "meals"])

    with pytest.raises(
        SwarmRefused, match="intents: 'general' of agent 'ada' is answered by 'personality' and 'other'; allowed"
    ):
        assign_swarms(agent=agent, swarms=[first, second])
    with pytest.raises(SwarmRefused, match="'general' of agent 'ada'"):
        save_swarm({**GOOD, "name": "meals", "intents": ["general", "food_log"]}, swarm=meals)
    with pytest.raises(SwarmRefused, match="swarms: 'nobody' is unknown; allowed: meals, other, personality"):
        assign_swarms(agent=agent, swarms=["nobody"])

    assert set(agent.swarms.all()) == {first, meals}
    assert Swarm.objects.get(name="meals").intents == ["food_log", "food_undo"]


def test_a_disabled_swarm_clashes_with_none() -> None:
    agent = make_agent()
    swarms = [save_swarm(GOOD), save_swarm({**GOOD, "name": "other", "enabled": False})]

    assign_swarms(agent=agent, swarms=swarms)

    assert agent.swarms.count() == 2


def test_the_swarms_of_the_example_are_stored_once_and_answer_their_intents() -> None:
    agent = make_agent()
    swarms = [save_swarm(GOOD), *ensure_food_swarms()]
    assert ensure_food_swarms() == swarms[1:]

    assign_swarms(agent=agent, swarms=swarms)

    chosen = {intent: swarms_for(agent.swarms.all(), intent) for intent in intents()}
    answering = {intent: swarms.role or swarms.voice for intent, swarms in chosen.items()}
    assert {intent: swarm and swarm.name for intent, swarm in answering.items()} == {
        "general": "personality",
        "food_question": "macro",
        "food_log": "tmwya",
        "food_mention": "tmwya",
        "food_undo": "tmwya",
        "kpi_today": "macro",
        "kpi_remaining": "macro",
    }
    assert {swarms.voice.name for swarms in chosen.values() if swarms.voice} == {"personality"}


def test_a_role_swarm_answers_an_intent_that_an_app_registered() -> None:
    register_intent("weather", lambda text: "umbrella" in text)
    try:
        agent = make_agent()
        weather = save_swarm({**GOOD, "name": "forecasts", "intents": ["weather"]})
        assign_swarms(agent=agent, swarms=[save_swarm(GOOD), weather])

        chosen = swarms_for(agent.swarms.all(), intent_of("Do I need an umbrella?"))
    finally:
        del INTENTS["weather"]

    assert chosen.role == weather
