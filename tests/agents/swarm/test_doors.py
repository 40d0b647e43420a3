"""The doors of swarms: the API of swarms and of what is remembered, the conversation in the terminal, the console, and erasure."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.chat import ask, begin_chat
from agents.erasure import ERASED, find_outsider, find_user, forget
from agents.kit.models import owner_name
from agents.models import Agent, Channel, Message, Run
from agents.swarm.models import DialogEntry, DialogState, DialogSummary, Swarm, SwarmTurn, UserPreferences
from agents.swarm.phases import ensure_default_swarm
from agents.swarm.state import Entry, add_quoted, entries, updating
from agents.turn.orchestrator import run_turn
from tests.api_client import Program, program, refused
from tests.console import HOSTILE, list_of, page_of, plain, read, signed_in, staff, superuser, viewer
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
SWARMS = "/api/swarms/"
PHASE = {"name": "voice", "phase": "pre", "order": 1, "prompt": "Judge how they talk."}
GOOD: dict[str, Any] = {"name": "support", "intents": ["general"], "phases": [PHASE]}
SAID = "I am allergic to peanuts. I live in Oslo."


@pytest.fixture
def client() -> Program:
    return program(superuser("root"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada", sample_lines=["To sum up, I would take the blue one for 40 euros."])


@pytest.fixture
def remembered(ada: Agent) -> DialogState:
    """A conversation in which one fact is known."""
    channel = make_channel("dm", kind="dm")
    message = say(channel, "Mia", SAID)
    with updating(ada, channel) as state:
        add_quoted(
            state, "facts", [Entry(text="allergic to peanuts", position=1, quote="allergic to peanuts")], [message]
        )
        state.position = 1
    return DialogState.objects.get()


# -- swarms over the API
def test_a_swarm_is_made_assigned_and_changed_over_the_api(client: Program, ada: Agent) -> None:
    made = client.post(SWARMS, GOOD)
    url = made["Location"]
    changed = client.patch(url, {"agents": ["ada"], "phases": [{**PHASE, "prompt": "Judge their tone."}]})

    assert made.status_code == 201
    assert changed.status_code == 200, changed.json()
    assert changed.json()["agents"] == ["ada"]
    assert [(one["name"], one["version"]) for one in changed.json()["phases"]] == [("voice", 2)]
    assert client.get(SWARMS).json()["results"][0]["url"] == url


def test_the_second_of_two_editors_is_told(client: Program) -> None:
    url = client.post(SWARMS, GOOD)["Location"]
    etag = client.get(url)["ETag"]
    client.patch(url, {"enabled": False})

    assert client.patch(url, {"enabled": True}, headers={"If-Match": etag}).status_code == 412


# -- what is remembered, over the API
def dialog(client: Program) -> str:
    return "/api/agents/ada/dialogs/dm/"


def test_entries_are_pinned_changed_added_with_their_quote_and_removed(
    client: Program, remembered: DialogState
) -> None:
    [fact] = client.get(dialog(client)).json()["facts"]
    new = {"text": "lives in Oslo", "position": 1, "quote": "i live in  Oslo"}

    both = client.patch(dialog(client), {"facts": [{"id": fact["id"], "pinned": True}, new]}).json()["facts"]
    left = client.patch(dialog(client), {"facts": []}).json()["facts"]

    assert [(one["text"], one["pinned"]) for one in both] == [(fact["text"], True), ("lives in Oslo", False)]
    assert both[1]["quote"] == "I live in Oslo."
    assert left == []


def test_the_answer_says_that_preferences_are_not_applied_while_several_people_talk(
    client: Program, remembered: DialogState
) -> None:
    root = signed_in(superuser("eve"))
    alone = client.patch(dialog(client), {"preferences": {"tone": "direct"}}).json()
    page = read(root, page_of(remembered))
    say(remembered.channel, "Zoe", "Hello.")
    several = client.patch(dialog(client), {"preferences": {"tone": "calm"}}).json()

    assert (alone["preferences"], alone["preferences_apply"]) == ({"tone": "direct"}, True)
    assert (several["preferences"], several["preferences_apply"]) == ({"tone": "calm"}, False)
    assert "Not applied" not in page
    assert "Not applied" in read(root, page_of(remembered))


@pytest.mark.parametrize(
    ("body", "field", "part"),
    [
        (
            {"facts": [{"text": "has a dog", "position": 1, "quote": "I have a dog"}]},
            "facts.quote",
            "allowed: words of the message",
        ),
        (
            {"facts": [{"text": "x", "position": 10**20, "quote": "x"}]},
            "facts[0].position",
            "allowed: less than or equal",
        ),
        ({"preferences": {"tone": "rude"}}, "preferences.tone", "'rude'; allowed: calm, friendly, direct"),
        ({"summary": "All is well."}, "summary", "allowed: with more than 12"),
        ({"dreams": []}, "dreams", "allowed: anchor, goal, facts"),
        ({"facts": [{"id": 10**9}]}, "facts[0].id", "1000000000; allowed: "),
        ({"preferences": {"mood": "x"}}, "preferences.mood", "allowed: tone, units, length, learning_style"),
    ],
)
def test_a_change_that_nobody_said_is_a_400_and_changes_nothing(
    client: Program, remembered: DialogState, body: dict[str, Any], field: str, part: str
) -> None:
    before = client.get(dialog(client)).json()

    assert part in refused(client.patch(dialog(client), body))[field][0]
    assert client.get(dialog(client)).json() == before


def test_viewers_of_messages_read_a_state_and_operators_change_it(remembered: DialogState) -> None:
    reader, blind = program(viewer()), program(staff("swarm.view_dialogstate"))

    assert reader.get(dialog(reader)).status_code == 200
    assert reader.patch(dialog(reader), {"facts": []}).status_code == 403
    assert blind.get(dialog(blind)).status_code == 403


def test_a_state_read_before_a_new_summary_is_not_the_present_one(client: Program, remembered: DialogState) -> None:
    etag = client.get(dialog(client))["ETag"]
    DialogSummary.objects.create(
        agent=remembered.agent,
        channel=remembered.channel,
        from_position=1,
        to_position=2,
        text="A.",
        status="completed",
    )

    assert client.get(dialog(client), headers={"If-None-Match": etag}).status_code == 200
    assert client.patch(dialog(client), {"facts": []}, headers={"If-Match": etag}).status_code == 412


# -- the terminal
def chat(*arguments: str) -> str:
    out = StringIO()
    call_command("chat", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_the_trace_of_a_script_says_what_the_swarm_did(ada: Agent, tmp_path: Path) -> None:
    ensure_default_swarm().agents.add(ada)
    script = tmp_path / "script.txt"
    script.write_text(
        "# a comment\nHow much ibuprofen should I take?\n\nWrite a short note about the blue vase from Delft\n"
    )

    shown = chat("ada", "--script", str(script), "--trace")

    assert "clarifier: clarify: How much does the person who takes it weigh?" in shown
    assert "polished, from: To sum up" in shown
    assert Channel.objects.get(slug="chat-ada-1").synthetic
    assert Message.objects.filter(channel__slug="chat-ada-1").count() == 4


def test_a_chat_without_a_swarm_gives_one_json_object(ada: Agent, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("Hello\n")

    shown = json.loads(chat("ada", "--script", str(script), "--json"))

    [one] = shown["exchanges"]
    assert (one["message"], one["replies"], one["trace"]) == ("Hello", list(ada.sample_lines), None)


def test_an_agent_without_sample_lines_says_why_it_is_silent(ada: Agent, tmp_path: Path) -> None:
    make_agent("mute", sample_lines=[])
    script = tmp_path / "script.txt"
    script.write_text("Hello\n")

    assert "says nothing: no sample lines" in chat("mute", "--script", str(script))


def test_the_default_swarm_is_stored_without_the_example_agents(db: None) -> None:
    before = Agent.objects.count()

    call_command("seed", "--swarm", stdout=StringIO())

    assert (Swarm.objects.filter(phases__isnull=False).exists(), Agent.objects.count()) == (True, before)


def test_a_long_talk_is_summarised_without_a_worker(ada: Agent, tmp_path: Path) -> None:
    ensure_default_swarm().agents.add(ada)
    script = tmp_path / "script.txt"
    script.write_text("".join(f"Tell me about lamp {n} of the shop in Delft\n" for n in range(8)))

    chat("ada", "--script", str(script))

    assert [summary.status for summary in DialogSummary.objects.all()] == ["completed"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("nobody", "--script", "x"), "there is no agent 'nobody'"),
        (("ada", "--script", "/nowhere"), "allowed: a UTF-8 text file"),
        (("ada", "--json"), "allowed with --script"),
        (("ada", "--script", "{script}", "--channel", "office"), "allowed for ada: none"),
    ],
)
def test_wrong_usage_is_refused_and_says_what_is_allowed(
    ada: Agent, tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    script = tmp_path / "script.txt"
    script.write_text("Hello\n")

    with pytest.raises(CommandError) as error:
        chat(*(one.format(script=script) for one in arguments))

    assert part in str(error.value)
    assert error.value.returncode in (2, 3)
    assert not Run.objects.exists()


# -- the console
def test_a_prompt_changed_in_the_console_is_a_version_with_its_difference(client: Program, ada: Agent) -> None:
    url = client.post(SWARMS, GOOD)["Location"]
    client.patch(url, {"phases": [{**PHASE, "prompt": "Judge how people talk."}]})

    page = read(signed_in(superuser("c")), page_of(Swarm.objects.get()))

    assert "voice, version 2" in plain(page)
    assert "<ins>people" in page


def test_the_page_of_a_state_shows_entries_and_pins_them(remembered: DialogState) -> None:
    root = signed_in(superuser("c"))
    [entry] = remembered.entries.all()
    html = read(root, page_of(remembered))
    page = plain(html)
    blind = plain(read(signed_in(staff("swarm.view_dialogstate")), page_of(remembered)))
    url = f"{page_of(remembered).removesuffix('change/')}entry/"
    root.post(url, {"pin": entry.pk, f"text-{entry.pk}": entry.text})

    forms = re.findall(r"<form\b|</form>", html)
    assert forms == ["<form", "</form>"] * (len(forms) // 2), "a browser drops a form inside another"
    assert "allergic to peanuts" in page
    assert "allergic" not in blind
    assert remembered.entries.get().pinned is True
    root.post(url, {"edit": entry.pk, f"text-{entry.pk}": "no peanuts"})
    assert remembered.entries.get().text == "no peanuts"
    root.post(url, {"edit": "gone"})
    root.post(url, {"remove": entry.pk})
    assert entries(remembered, "facts") == []


def test_people_add_entries_and_write_the_summary_in_the_console(remembered: DialogState) -> None:
    root, url = signed_in(superuser("c")), f"{page_of(remembered).removesuffix('change/')}entry/"
    entry = {"add": "1", "kind": "facts", "text": "lives in Oslo", "position": "1", "pinned": "on"}

    root.post(url, {**entry, "quote": "I live in Rome"})
    refused = plain(read(root, page_of(remembered)))
    root.post(url, {**entry, "quote": "I live in Oslo"})
    held = entries(remembered, "facts")
    for number in range(20):
        say(remembered.channel, "Mia", f"Message {number}.")
    text = " ".join(["They talk about Oslo.", *(entry.quote for entry in held)])
    root.post(url, {"write": "1", "summary": text})

    assert "does not stand in message 1" in refused
    assert [(entry.text, entry.pinned, entry.by) for entry in held[1:]] == [("lives in Oslo", True, "person")]
    assert DialogSummary.objects.get().origin == "person"
    assert "Written by a person." in plain(read(root, page_of(remembered)))


def test_a_failed_summary_and_refused_polishes_are_shown_with_what_is_remembered(
    client: Program, remembered: DialogState
) -> None:
    agent, channel = remembered.agent, remembered.channel
    sent = say(channel, agent, "It costs 40 euros.")
    rejected = [{"phase": "post", "text": "It costs 50 euros.", "why": "it changes the number 40"}]
    SwarmTurn.objects.create(agent=agent, channel=channel, message=sent, draft=sent.text, rejected=rejected)
    DialogSummary.objects.create(
        agent=agent, channel=channel, from_position=1, to_position=1, status="failed", error="malformed: no JSON"
    )

    answered = client.get(dialog(client)).json()
    page = plain(read(signed_in(superuser("c")), page_of(remembered)))

    assert "malformed: no JSON" in answered["summary_failed"]
    assert answered["refused_polishes"] == [{"position": 2, "phase": "post", "why": "it changes the number 40"}]
    assert "malformed: no JSON" in page
    assert "it changes the number 40" in page


def test_a_summary_that_fails_is_said_in_the_trace(ada: Agent, tmp_path: Path, llm_server: LLMServer) -> None:
    ensure_default_swarm().agents.add(ada)
    llm_server.always(text="no JSON and no tool call")
    script = tmp_path / "script.txt"
    script.write_text("".join(f"Tell me about lamp {n} of the shop in Delft\n" for n in range(16)))

    shown = chat("ada", "--script", str(script), "--trace")

    assert "summary: messages up to" in shown


def test_the_list_of_turns_says_what_a_swarm_did(ada: Agent) -> None:
    rejected = [{"phase": "post", "text": "It costs 50 euros.", "why": "it changes the number 40"}]
    SwarmTurn.objects.create(agent=ada, channel=make_channel(), draft="It costs 40 euros.", rejected=rejected)

    assert "polish refused" in plain(read(signed_in(superuser("d")), list_of(SwarmTurn)))


def test_the_dialog_state_stands_beside_a_chat_and_is_followed(ada: Agent) -> None:
    ensure_default_swarm().agents.add(ada)
    chat, root = begin_chat(ada), signed_in(superuser("c"))
    run = ask(ada, chat, "How much ibuprofen should I take?")
    url = page_of(chat, "chat")
    before_answer = read(root, url)
    run_turn(run, owner=owner_name())
    answered = read(root, url)
    seen = read(root, f"{url}?progress=1")
    with updating(ada, chat) as state:
        add_quoted(
            state, "facts", [Entry(text="takes ibuprofen", position=1, quote="ibuprofen")], list(chat.messages.all())
        )
    DialogSummary.objects.create(
        agent=ada, channel=chat, from_position=1, to_position=1, status="failed", error="malformed: no JSON"
    )

    assert "What it remembers" in before_answer
    assert "The question that waits" in answered
    assert "How much does the person who takes it weigh?" in plain(answered.partition('id="beside-state"')[2])
    assert read(root, f"{url}?progress=1") != seen, "the page fetches what changed"
    assert "malformed: no JSON" in plain(read(root, url))


def test_a_chat_shows_no_state_without_a_swarm_or_to_who_may_not_view_it(ada: Agent) -> None:
    chat = begin_chat(ada)
    ask(ada, chat, "Good morning.")
    root, url = signed_in(superuser("c")), page_of(chat, "chat")
    without_swarm = read(root, url)
    ensure_default_swarm().agents.add(ada)
    blind = staff("agents.view_agent", "agents.view_channel", "agents.view_message")

    assert "beside-state" not in without_swarm
    assert "beside-state" in read(root, url)
    assert "beside-state" not in read(signed_in(blind), url)


def test_hostile_text_in_a_dialog_state_is_shown_and_never_run(ada: Agent) -> None:
    ensure_default_swarm().agents.add(ada)
    chat = begin_chat(ada)
    ask(ada, chat, HOSTILE)
    state = DialogState.objects.create(
        agent=ada,
        channel=chat,
        position=1,
        pending={"question": HOSTILE},
        preferences={HOSTILE: HOSTILE},
        last_tool={"name": HOSTILE},
    )
    state.entries.create(kind="facts", text=HOSTILE, quote=HOSTILE, position=1, author=HOSTILE, pinned=True)
    values = {"from_position": 1, "to_position": 1, "text": HOSTILE}
    DialogSummary.objects.create(agent=ada, channel=chat, status="completed", **values)
    DialogSummary.objects.create(agent=ada, channel=chat, status="failed", error=HOSTILE, **values | {"to_position": 2})
    rejected = [{"phase": HOSTILE, "text": HOSTILE, "why": HOSTILE}]
    SwarmTurn.objects.create(agent=ada, channel=chat, run=Run.objects.get(), intent=HOSTILE, rejected=rejected)
    root = signed_in(superuser("c"))

    for page in (page_of(chat, "chat"), page_of(state)):
        html = read(root, page)
        assert HOSTILE not in html
        assert html.count("&lt;script&gt;") >= 8


def test_a_conversation_says_beside_each_message_what_the_swarm_did_with_it(ada: Agent) -> None:
    channel = make_channel()
    message = say(channel, ada, "It is 40 euros.")
    SwarmTurn.objects.create(
        agent=ada, channel=channel, message=message, draft="It costs 40 euros.", polished=message.text
    )

    DialogState.objects.create(agent=ada, channel=channel)
    root = signed_in(superuser("c"))
    with CaptureQueriesContext(connection) as first:
        page = read(root, page_of(channel, "transcript"))
    for _ in range(5):
        message = say(channel, ada, "It is 40 euros.")
        SwarmTurn.objects.create(agent=ada, channel=channel, message=message, draft="It is.", polished=message.text)
    with CaptureQueriesContext(connection) as more:
        read(root, page_of(channel, "transcript"))

    assert "swarm: polished" in plain(page)
    assert "what it remembers" in plain(page)
    assert f'href="{page_of(DialogState.objects.get())}"' in page
    assert len(more) <= len(first)


# -- erasure
def test_a_persons_words_go_from_states_summaries_turns_and_preferences(ada: Agent, remembered: DialogState) -> None:
    channel, other = remembered.channel, make_channel("elsewhere")
    DialogState.objects.create(agent=ada, channel=other)
    DialogSummary.objects.create(
        agent=ada, channel=channel, from_position=1, to_position=1, text=f"Discussed “{SAID}”", status="completed"
    )
    turn = SwarmTurn.objects.create(
        agent=ada,
        channel=channel,
        calibration={"reading": {"facts": [{"text": "peanut allergy", "quote": SAID}]}},
        draft=f"You said: {SAID} So take the other one.",
        rejected=[{"phase": "post", "text": SAID, "why": "it drops"}],
        steps=[{"kind": "post", "call": "post", "phases": [{"name": "voice"}], "outcome": "refused", "text": SAID}],
        milliseconds={"pre": 3},
    )

    list(forget(find_outsider("Mia")))

    turn.refresh_from_db()
    assert [state.channel for state in DialogState.objects.all()] == [other]
    assert not DialogEntry.objects.exists()
    assert not DialogSummary.objects.exists()
    assert "peanut" not in json.dumps([turn.calibration, turn.steps, turn.draft, turn.rejected])
    assert [(step["call"], step["outcome"], step["phases"][0]["name"]) for step in turn.steps] == [
        ("post", "refused", "voice")
    ]
    assert (turn.milliseconds, turn.draft, turn.rejected[0]["phase"]) == ({"pre": 3}, ERASED, "post")


def test_a_users_preferences_go_with_what_they_said(ada: Agent) -> None:
    users = [superuser(name) for name in ("ann", "ben")]
    for user in users:
        UserPreferences.objects.create(user=user, tone="calm")

    list(forget(find_user("ann")))

    assert [one.user for one in UserPreferences.objects.all()] == users[1:]


def test_old_turns_and_replaced_summaries_go_and_what_is_shown_stays(ada: Agent) -> None:
    channel, old = make_channel(), timezone.now() - timedelta(days=100)
    SwarmTurn.objects.create(agent=ada, channel=channel)
    SwarmTurn.objects.update(created_at=old)
    fresh = SwarmTurn.objects.create(agent=ada, channel=channel)
    for upto in (4, 8):
        DialogSummary.objects.create(
            agent=ada, channel=channel, from_position=1, to_position=upto, status="completed", finished_at=old
        )

    call_command("prune_logs", "--older-than", "90d", stdout=StringIO())

    assert list(SwarmTurn.objects.all()) == [fresh]
    assert [summary.to_position for summary in DialogSummary.objects.all()] == [8]
