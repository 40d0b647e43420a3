"""A swarm as a lane in the console: what each phase did in a turn, phases edited one at a time, and which agents have it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.models import Agent, Channel
from agents.swarm.assign import save_swarm
from agents.swarm.lane import Box, LaneStage, lane_of_turn
from agents.swarm.models import DialogSummary, Swarm, SwarmPhase, SwarmTurn
from agents.swarm.phases import ensure_default_swarm
from tests.agents.swarm.speaking import ANSWER, Mind, asks, noted, with_swarm
from tests.console import HOSTILE, in_group, list_of, page_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
QUESTION = "Which of the two lamps should I buy?"
SHORTER = ANSWER.replace("I would take it.", "I'd take it.")


@pytest.fixture(autouse=True)
def _swarm_alone(settings: Settings) -> None:
    settings.TURN_PIPELINE = ["agents.swarm.stages.Calibration", "agents.swarm.stages.Polish"]


@pytest.fixture
def root() -> Client:
    return signed_in(superuser("c"))


def stage_of(turn: SwarmTurn, kind: str) -> LaneStage:
    [stage] = [stage for stage in lane_of_turn(turn).stages if stage.kind == kind]
    return stage


def box_of(turn: SwarmTurn, name: str) -> Box:
    [box] = [box for stage in lane_of_turn(turn).stages for box in stage.boxes if box.name == name]
    return box


def phase_page(phase: SwarmPhase) -> str:
    return reverse("admin:swarm_swarm_phase", args=[phase.pk])


def fields_of(row: SwarmPhase, **changed: Any) -> dict[str, Any]:
    """What the page of a phase sends, which is switched on."""
    columns = ("name", "phase", "order", "prompt", "temperature")
    return {name: getattr(row, name) for name in columns} | {"enabled": "on"} | changed


# -- what the phases did in a turn
def test_the_lane_leads_from_the_message_through_all_phases_to_the_answer(root: Client, llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    mind.polishes = lambda _: {"json": {"text": SHORTER}}
    ada = with_swarm()
    run, said = asks(ada, QUESTION)

    html = read(root, page_of(noted(run)))
    page = plain(html)

    order = [QUESTION, "voice-calibrator", "tone direct", "core-responder", ANSWER, "tool-governance", said[0].text]
    places = [page.rindex(text) if text == said[0].text else page.index(text) for text in order]
    assert places == sorted(places)
    assert "<del>" in html
    assert "<ins>" in html
    assert stage_of(noted(run), "post").shared is not None
    assert f"{noted(run).milliseconds['post']} ms" in page
    assert "polished 1" in page


def test_asked_one_by_one_each_polisher_shows_what_became_of_its_call(root: Client, llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    answers: list[dict[str, Any]] = [
        {"json": {"text": SHORTER}},
        {"json": {"text": SHORTER.replace("40", "45")}},
        {"text": "no JSON"},
    ]
    mind.polishes = lambda draft: answers.pop(0) if answers else {"json": {"text": draft}}
    ada = with_swarm()
    Swarm.objects.update(post_executor="sequential")
    SwarmPhase.objects.filter(name="error-recovery").update(enabled=False)

    run, _ = asks(ada, QUESTION)

    turn = noted(run)
    outcomes = {box.name: box.call.outcome if box.call else box.why_skipped for box in stage_of(turn, "post").boxes}
    assert outcomes == {
        "structure-and-brevity": "changed",
        "numbers-and-accuracy": "refused",
        "safety-and-refusal": "failed",
        "memory-and-preferences": "unchanged",
        "error-recovery": "switched off",
        "tool-governance": "unchanged",
    }
    refused = box_of(turn, "numbers-and-accuracy").call
    assert refused is not None
    assert (refused.before, refused.why) == (SHORTER, turn.rejected[0]["why"])
    page = plain(read(root, page_of(turn)))
    assert turn.rejected[0]["why"] in page
    assert "skipped: switched off" in page


def test_what_a_question_back_and_a_replacement_leave_out_says_why(llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    mind.polishes = lambda _: {
        "json": {"text": "I won't.", "replaced_by": "safety-and-refusal", "reason": "It would harm a person."}
    }
    ada = with_swarm()
    Swarm.objects.update(post_executor="sequential")
    SwarmPhase.objects.filter(name="safety-and-refusal").update(order=0)
    replaced = noted(asks(ada, QUESTION)[0])
    mind.reading = {"risk": 0.9, "missing": ["body weight"], "question": "How much do you weigh?"}
    asked_back = noted(asks(ada, "How much ibuprofen should I take?")[0])

    call = box_of(replaced, "safety-and-refusal").call
    assert call is not None
    assert (call.outcome, call.after) == ("replaced", "I won't.")
    assert all(box.why_skipped for box in stage_of(replaced, "post").boxes[1:])
    assert all(box.why_skipped for kind in ("main", "post") for box in stage_of(asked_back, kind).boxes)
    assert not any(box.why_skipped for box in stage_of(asked_back, "pre").boxes)
    assert lane_of_turn(asked_back).decision == "asked back"


def test_a_calibration_that_failed_says_why(root: Client, llm_server: LLMServer) -> None:
    mind = Mind(llm_server)
    mind.fails_reading = {"text": "no JSON"}

    run, _ = asks(with_swarm(), QUESTION)

    shared = stage_of(noted(run), "pre").shared
    assert shared is not None
    assert shared.outcome == "failed"
    assert shared.why in plain(read(root, page_of(noted(run))))


def test_an_old_turn_shows_the_phases_as_they_were(llm_server: LLMServer) -> None:
    Mind(llm_server)
    run, _ = asks(with_swarm(), QUESTION)
    swarm = Swarm.objects.get()
    SwarmPhase.objects.filter(name="voice-calibrator").update(prompt="Judge the tone.", version=2)
    SwarmPhase.objects.filter(name="core-responder").delete()
    swarm.phases.create(phase="post", name="later", order=7, prompt="Be kind.")

    voice, core = box_of(noted(run), "voice-calibrator"), box_of(noted(run), "core-responder")

    assert (voice.version, voice.phase and voice.phase.version, core.phase) == (1, 2, None)
    assert box_of(noted(run), "later").why_skipped


def test_a_failed_summary_of_the_conversation_is_marked(root: Client, llm_server: LLMServer) -> None:
    Mind(llm_server)
    ada = with_swarm()
    run, _ = asks(ada, QUESTION)
    DialogSummary.objects.create(
        agent=ada,
        channel=Channel.objects.get(),
        from_position=1,
        to_position=1,
        status="failed",
        error="malformed: no JSON",
    )

    assert "malformed: no JSON" in plain(read(root, page_of(noted(run))))
    assert "malformed: no JSON" in plain(read(root, page_of(ada.swarms.get())))


# -- the page of a swarm
def test_the_page_of_a_swarm_shows_its_newest_turn_and_others_by_links(root: Client, llm_server: LLMServer) -> None:
    mind, ada, runs = Mind(llm_server), with_swarm(), []
    for answer in ("Take the blue one.", "Take the green one."):
        mind.says = [answer]
        runs.append(asks(ada, QUESTION)[0])
    swarm, first = ada.swarms.get(), noted(runs[0])
    other = SwarmTurn.objects.create(agent=ada, channel=make_channel("else"), swarm=None, draft="Of no swarm.")

    page = read(root, page_of(swarm))

    assert "Take the green one." in plain(page)
    assert f"?turn={first.pk}#lane" in page
    assert "Take the blue one." in plain(read(root, f"{page_of(swarm)}?turn={first.pk}"))
    assert "Of no swarm." not in plain(read(root, f"{page_of(swarm)}?turn={other.pk}"))
    assert "Take the green one." in plain(read(root, f"{page_of(swarm)}?turn=x"))
    assert page_of(first) in read(root, page_of(noted(runs[1]))), "a turn leads to the one before it"


def test_who_may_not_read_messages_sees_the_phases_alone(llm_server: LLMServer) -> None:
    Mind(llm_server)
    ada = with_swarm()
    asks(ada, QUESTION)
    blind = staff("swarm.view_swarm", "swarm.view_swarmphase", "swarm.view_swarmturn")

    page = plain(read(signed_in(blind), page_of(ada.swarms.get())))

    assert "voice-calibrator" in page
    assert QUESTION not in page
    assert ANSWER not in page


def test_a_swarm_without_turns_shows_its_phases_and_which_are_skipped(root: Client) -> None:
    swarm = ensure_default_swarm()
    Swarm.objects.update(post_executor="off", enabled=False)
    SwarmPhase.objects.filter(name="voice-calibrator").update(enabled=False)

    page = plain(read(root, page_of(swarm)))

    assert page.count("skipped: polishing is off") == 6
    assert page.count("skipped: switched off") == 1
    assert "The swarm is off" in page


def test_hostile_text_in_phases_and_turns_is_shown_and_never_run(root: Client) -> None:
    ada, swarm = make_agent("ada", display_name=HOSTILE), ensure_default_swarm()
    channel = make_channel()
    message = say(channel, "Mia", HOSTILE)
    SwarmPhase.objects.update(prompt=HOSTILE)
    phase = swarm.phases.get(name="core-responder")
    asked = {"id": phase.pk, "name": HOSTILE, "order": 1, "version": 1}
    steps = [
        {"kind": kind, "call": HOSTILE, "phases": [asked], "outcome": outcome, "text": HOSTILE, "why": HOSTILE}
        for kind, outcome in (("pre", "failed"), ("main", "skipped"), ("post", "refused"), ("post", HOSTILE))
    ]
    rejected = [{"phase": HOSTILE, "text": HOSTILE, "why": HOSTILE}] * 3
    entry = {"text": HOSTILE, "quote": HOSTILE, "position": 1}
    reading = {"tone": HOSTILE, "facts": [entry], "anchor": [entry]}
    turn = SwarmTurn.objects.create(
        agent=ada,
        channel=channel,
        swarm=swarm,
        message=message,
        intent=HOSTILE,
        steps=steps,
        rejected=rejected,
        draft=HOSTILE,
        polished=f"{HOSTILE}!",
        replaced=HOSTILE,
        milliseconds={HOSTILE: 3},
        calibration={"reading": reading, "decision": {"kind": "assume", "text": HOSTILE}, "failed": HOSTILE},
    )

    for page in (page_of(swarm), page_of(turn), phase_page(phase), list_of(Swarm)):
        assert HOSTILE not in read(root, page), page


def test_pages_and_lists_make_as_many_statements_for_many_turns_phases_and_agents(root: Client) -> None:
    ada, swarm, channel = make_agent("ada"), ensure_default_swarm(), make_channel()

    def add_turns(number: int) -> SwarmTurn:
        asked = [{"id": phase.pk, "name": phase.name, "order": 1, "version": 1} for phase in swarm.phases.all()]
        steps = [{"kind": "post", "call": "post", "phases": asked, "outcome": "unchanged", "text": "", "why": ""}]
        for _ in range(number):
            message = say(channel, ada, "It is 40 euros.")
            turn = SwarmTurn.objects.create(
                agent=ada, channel=channel, swarm=swarm, message=message, steps=steps, draft=message.text
            )
        return turn

    turn = add_turns(2)
    few = len(queries(root, page_of(swarm))), len(queries(root, page_of(turn)))
    for number in range(9):
        swarm.phases.create(phase="post", name=f"post-{number}", order=number + 7, prompt="Be kind.")
    turn = add_turns(12)
    many = len(queries(root, page_of(swarm))), len(queries(root, page_of(turn)))

    assert many[0] <= few[0] <= 22
    assert many[1] <= few[1] + 1 <= 20, "the first turns of a talk have none before them"


def test_the_list_names_the_first_agents_of_each_swarm_and_how_many_more_have_it(root: Client) -> None:
    swarm = ensure_default_swarm()
    save_swarm({"name": "unused", "intents": ["food_log"]})
    for number in range(5):
        swarm.agents.add(make_agent(f"agent-{number}", display_name=f"Agent {number}"))

    html = read(root, list_of(Swarm))

    assert [f"Agent {number}" in html for number in range(5)] == [True, True, True, False, False]
    assert "+2 more" in plain(html)
    others = read(root, list_of(Agent, f"?swarms__id__exact={swarm.pk}"))
    assert all(f"Agent {number}" in others for number in range(5))


# -- one phase at a time
def test_one_phase_is_edited_alone_and_the_others_stay(root: Client) -> None:
    swarm = ensure_default_swarm()
    phase = swarm.phases.get(name="core-responder")
    others = list(swarm.phases.exclude(pk=phase.pk).values())

    answer = root.post(phase_page(phase), fields_of(phase, prompt="Answer in rhyme.\r\nAlways.", enabled=""))

    phase.refresh_from_db()
    assert answer["Location"] == f"{page_of(swarm)}#lane"
    assert (phase.prompt, phase.version, phase.enabled) == ("Answer in rhyme.\nAlways.", 2, False)
    assert list(swarm.phases.exclude(pk=phase.pk).values()) == others
    assert "core-responder, version 2" in plain(read(root, phase_page(phase)))
    assert LogEntry.objects.filter(object_id=str(swarm.pk), change_message__contains="core-responder").exists()


def test_saving_a_phase_unchanged_makes_no_version(root: Client) -> None:
    phase = ensure_default_swarm().phases.get(name="core-responder")
    SwarmPhase.objects.filter(pk=phase.pk).update(prompt="One line.\nAnother.")
    phase.refresh_from_db()

    root.post(phase_page(phase), fields_of(phase, prompt="One line.\r\nAnother."))

    phase.refresh_from_db()
    history: Any = SwarmPhase.history
    assert (phase.version, history.filter(id=phase.pk).count()) == (1, 1)


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"name": "voice-calibrator"}, "'voice-calibrator' is in use; allowed: another name"),
        ({"name": "two words"}, "two words"),
        ({"temperature": "3"}, "less than or equal to 2"),
        ({"order": "0"}, "greater than or equal to 1"),
        ({"prompt": " "}, "at least 1"),
        ({"phase": "middle"}, "middle"),
    ],
)
def test_a_phase_that_could_not_work_is_refused_at_its_field(root: Client, changed: dict[str, str], part: str) -> None:
    phase = ensure_default_swarm().phases.get(name="core-responder")
    before = SwarmPhase.objects.filter(pk=phase.pk).values().get()

    answer = root.post(phase_page(phase), fields_of(phase, **changed))

    [field] = changed
    assert part in answer.context["form"].errors[field][0]
    assert SwarmPhase.objects.filter(pk=phase.pk).values().get() == before


def test_a_phase_is_added_last_and_removed_again(root: Client) -> None:
    swarm = ensure_default_swarm()
    url = reverse("admin:swarm_swarm_add_phase", args=[swarm.pk])
    form = root.get(f"{url}?phase=post").context["form"]

    assert (form["phase"].value(), form["order"].value()) == ("post", 7)
    assert root.get(f"{url}?phase=%00").status_code == 200
    new = {"name": "warmth", "phase": "post", "order": 7, "prompt": "Be kind.", "temperature": "0.4", "enabled": "on"}
    root.post(url, new)
    phase = swarm.phases.get(name="warmth")
    root.post(phase_page(phase), {"remove": "1"})
    assert swarm.phases.count() == 10
    assert "removed" in plain(read(root, page_of(swarm)))


def test_viewers_read_a_phase_and_change_nothing(db: None) -> None:
    phase = ensure_default_swarm().phases.get(name="core-responder")
    client = signed_in(viewer())

    page = read(client, phase_page(phase))

    assert phase.prompt[:40] in plain(page)
    assert 'name="prompt"' not in page
    for sent in ({"remove": "1"}, fields_of(phase, prompt="Rhyme.")):
        assert client.post(phase_page(phase), sent).status_code == 403
    assert client.post(reverse("admin:swarm_swarm_add_phase", args=[phase.swarm_id])).status_code == 403
    assert signed_in(in_group("Editor")).post(phase_page(phase), fields_of(phase, prompt="Rhyme.")).status_code == 302
    phase.refresh_from_db()
    assert phase.prompt == "Rhyme."


def test_a_new_swarm_leads_to_its_page_where_it_gets_phases(root: Client) -> None:
    asked = {"name": "fresh", "intents": '["general"]', "tools": "[]", "enabled": "on", "post_executor": "combined"}

    answer = root.post(reverse("admin:swarm_swarm_add"), asked)

    swarm = Swarm.objects.get(name="fresh")
    assert answer["Location"] == page_of(swarm)
    assert reverse("admin:swarm_swarm_add_phase", args=[swarm.pk]) in read(root, page_of(swarm))
