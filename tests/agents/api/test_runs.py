"""Turns over the API: asked for, looked at with their trace, cancelled."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.kit.models import owner_name
from agents.models import Agent, Channel, Run
from agents.turn.orchestrator import run_turn
from tests.agents.turn.playing import plays, take_turn
from tests.api_client import Program, queries
from tests.factories import say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

RUNS, TURNS = "/api/runs/", "/api/agents/ada/turns/"


def test_a_turn_is_asked_for_and_waits_for_a_worker(client: Program, ada: Agent, office: Channel) -> None:
    trigger = say(office, "Guest", "Ada?")

    answer = client.post(TURNS, {"channel": "office", "prompt": "Be brief.", "trigger": trigger.pk, "deadline": 2})

    assert answer.status_code == 202
    shown = answer.json()
    assert {name: shown[name] for name in ("agent", "channel", "status", "prompt", "trigger", "stop_reason")} == {
        "agent": "ada", "channel": "office", "status": "pending", "prompt": "Be brief.", "trigger": trigger.pk,
        "stop_reason": "",
    }  # fmt: skip
    assert client.get(shown["trigger_url"]).json()["text"] == "Ada?"
    whole = client.get(answer["Location"]).json()
    assert {name: whole[name] for name in shown} == shown
    assert whole["overrides"] == {"gate_deadline_seconds": 2.0, "gate_total_deadline_seconds": 2.0}
    assert (whole["said"], whole["usage"]["calls"], whole["usage"]["cost_usd"]) == ([], 0, "0.00000000")


def test_nobody_asks_for_a_turn_of_an_inactive_or_unknown_agent(client: Program, ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).update(is_active=False)

    assert client.post(TURNS, {"channel": "office"}).status_code == 409
    assert client.post("/api/agents/nobody/turns/", {"channel": "office"}).status_code == 404


def test_a_turn_that_was_taken_shows_what_happened(
    client: Program, ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = ["tests.agents.turn.stages.Hint"]
    plays(
        llm_server, ("send_message", {"channel": "office", "text": "Good day."}), ("do_nothing", {"reason": "said it"})
    )
    run = take_turn(ada, office)

    shown = client.get(f"{RUNS}{run.pk}/").json()
    trace = client.get(shown["trace_url"]).json()

    assert (shown["status"], shown["stop_reason"], [m["text"] for m in shown["said"]]) == (
        "completed", "end_turn", ["Good day."],
    )  # fmt: skip
    assert shown["usage"]["calls"] == shown["usage_with_stages"]["calls"] == 2
    assert [call["purpose"] for call in client.get(shown["calls_url"]).json()["results"]] == ["turn", "turn"]
    assert [(stage["stage"], stage["phase"]) for stage in trace["stages"]] == [("hint", "prepare")]
    assert [step["kind"] for step in trace["steps"]] == ["model_call", "tool_call", "model_call", "tool_call"]
    assert client.get(trace["steps"][0]["call_url"]).json()["run"] == run.pk
    assert [entry["role"] for entry in trace["exchange"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert (trace["exchange"][3]["message"], trace["exchange"][3]["step"]) == (shown["said"][0]["id"], 2)


def test_a_turn_that_is_waited_for_is_a_304_until_something_happens(client: Program, ada: Agent) -> None:
    url = client.post(TURNS, {"channel": "office"})["Location"]
    etag = client.get(url)["ETag"]

    assert client.get(url, headers={"If-None-Match": etag}).status_code == 304
    Run.objects.get().steps.create(number=1, kind="tool_call")
    changed = client.get(url, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()["steps"]) == (200, 1)
    Run.objects.update(status="completed")
    assert client.get(url, headers={"If-None-Match": changed["ETag"]}).json()["status"] == "completed"


def test_a_stage_whose_phase_is_not_known_any_more_is_shown(client: Program, ada: Agent, office: Channel) -> None:
    entry = {"stage": "gone", "phase": "before", "status": "stopped", "ms": 1.5}
    run = Run.objects.create(agent=ada, channel=office, trace=[entry])

    assert client.get(f"{RUNS}{run.pk}/trace/").json()["stages"] == [entry]


def test_times_are_in_the_zone_of_the_installation(
    client: Program, ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    run = Run.objects.create(agent=ada, channel=office)

    assert client.get(f"{RUNS}{run.pk}/").json()["created_at"].endswith("+09:00")


def test_a_long_trace_costs_no_more_queries_than_a_short_one(
    client: Program, ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("do_nothing", {"reason": "no"}))
    short = take_turn(ada, office)
    said = [("send_message", {"channel": "office", "text": f"line {n}"}) for n in range(6)]
    plays(llm_server, *said, ("do_nothing", {"reason": "enough"}))
    long = take_turn(ada, office)

    assert queries(client, f"{RUNS}{short.pk}/") == queries(client, f"{RUNS}{long.pk}/")
    assert queries(client, f"{RUNS}{short.pk}/trace/") == queries(client, f"{RUNS}{long.pk}/trace/")


# -- cancelling
def test_cancelling_stops_waiting_turns_at_once_and_running_ones_before_another_step(
    client: Program, ada: Agent, bob: Agent, office: Channel
) -> None:
    waiting = Run.objects.create(agent=ada, channel=office)
    running = Run.objects.create(agent=bob, channel=office, status="running", lease_owner="other:1:x")

    first = client.post(f"{RUNS}{waiting.pk}/cancel/")
    second = client.post(f"{RUNS}{running.pk}/cancel/")

    assert (first.status_code, first.json()["status"], first.json()["stop_reason"]) == (200, "cancelled", "cancelled")
    assert (second.json()["status"], second.json()["cancel_requested"]) == ("running", True)
    assert client.post(f"{RUNS}{waiting.pk}/cancel/").status_code == 200  # asked again, it is what was asked for


def test_a_turn_that_has_ended_is_not_cancelled(client: Program, ada: Agent, office: Channel) -> None:
    run = run_turn(Run.objects.create(agent=ada, channel=None), owner=owner_name())

    answer = client.post(f"{RUNS}{run.pk}/cancel/")

    assert (answer.status_code, answer.json()["detail"]) == (409, f"run {run.pk} has ended already: failed")
    assert client.post(f"{RUNS}{run.pk}/cancel/", {"why": "x"}).status_code == 400
    assert client.post(f"{RUNS}{run.pk + 1}/cancel/").status_code == 404
