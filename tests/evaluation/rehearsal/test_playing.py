"""Playing an agent through situations, over the real SDK and with the offline actor (AC-6.5.2)."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, LLMCall, MemoryBlock, MemoryPassage, Message, Run
from agents.persona import save_persona
from agents.turn.pipeline import Revise
from evaluation.rehearsal import Situation, play
from tests.agents.turn.playing import join, shown, take_turn
from tests.evaluation.judged import make_run
from tests.evaluation.rehearsal.acting import HELLO, QUARREL, TWO, acts, place, played, said
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db(transaction=True)


class Refusing:
    """A stage that lets nothing pass."""

    name = "refusing"

    def review(self, turn: Any, draft: Any) -> Revise:
        return Revise("Never.")


class Required(Refusing):
    required = True


@pytest.fixture
def scripted(settings: Settings) -> Agent:
    settings.ACTOR_MODEL = "offline:scripted-1"
    return make_agent("ada", sample_lines=[f"Line {n}." for n in range(6)])


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def test_every_line_is_said_and_answered_in_a_synthetic_channel_of_its_own_ac_6_5_2(
    llm_server: LLMServer, ada: Agent
) -> None:
    llm_server.respond = acts(lambda body: f"I heard {llm_server.calls}")

    found = played(ada, repeats=2)

    assert found.complete
    assert not found.problem
    assert [(c.situation, c.repeat, c.lines, c.played) for c in found.conversations] == [
        ("hello", 1, 2, 2), ("quarrel", 1, 1, 1), ("hello", 2, 2, 2), ("quarrel", 2, 1, 1),
    ]  # fmt: skip
    channels = Channel.objects.filter(slug__in=[c.channel for c in found.conversations])
    assert [channel.synthetic for channel in channels] == [True] * 4
    messages = Message.objects.filter(channel__in=channels)
    assert set(messages.values_list("synthetic", flat=True)) == {True}
    assert messages.count() == 12
    assert found.messages == 6
    first = messages.filter(channel__slug=found.conversations[0].channel).order_by("position")
    assert [(m.author_name, m.tags) for m in first] == [
        (who, {"play": found.id, "situation": "hello", "repeat": "1", "turn": turn})
        for turn in "12"
        for who in ("Robin", "Ada")
    ]


def test_no_conversation_knows_of_another(llm_server: LLMServer, ada: Agent) -> None:
    office = make_channel("office")
    join(office, ada)
    say(office, "Bob", "The real office talk.")
    llm_server.respond = acts(lambda body: f"Answer in {place(body)[-4:]}.")

    found = played(ada)

    hello, quarrel = (c.channel for c in found.conversations)
    last = shown(llm_server.bodies[-1])
    assert quarrel in last
    assert hello not in last
    assert "Good morning." not in last
    assert "office" not in last


def test_nothing_played_reaches_a_real_channel_or_a_memory(llm_server: LLMServer, ada: Agent) -> None:
    office = make_channel("office")
    join(office, ada)
    steps = iter(
        [
            ("send_message", {"channel": "office", "text": "Out of the play!"}),
            ("update_memory", {"label": "mood", "value": "cross"}),
            ("store_memory", {"text": "Zed is rude."}),
            ("do_nothing", {"reason": "enough"}),
        ]
    )
    llm_server.respond = lambda body: {"tool_calls": [next(steps)]}

    found = played(ada, QUARREL)

    assert not Message.objects.filter(channel=office).exists()
    assert not MemoryBlock.objects.exists()
    assert not MemoryPassage.objects.exists()
    assert (found.messages, found.conversations[0].silent, found.conversations[0].silence) == (0, 1, "enough")
    assert "the agent said nothing in any of 1 conversations: enough" in found.problem


def test_a_real_turn_never_hears_of_played_channels(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.respond = acts(lambda body: "Hm.")
    found = played(ada)
    office = make_channel("office")
    join(office, ada)

    llm_server.respond = lambda body: {
        "tool_calls": [("send_message", {"channel": found.conversations[0].channel, "text": "x"})]
        if len(body["messages"]) == 1
        else [("do_nothing", {"reason": "lost"})]
    }
    take_turn(ada, office)

    assert "-talk-" not in shown(llm_server.bodies[-1])
    assert Message.objects.filter(agent=ada).count() == found.messages, "nothing was added to the play"


def test_every_mechanism_is_off(llm_server: LLMServer, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.Refusing"]
    llm_server.respond = acts(lambda body: "Said as it is.")

    found = played(ada, QUARREL)

    assert said(found) == [("quarrel", "1", "Zed", "You are wrong."), ("quarrel", "1", "Ada", "Said as it is.")]
    assert [run.trace for run in Run.objects.all()] == [[]]


def test_a_required_stage_is_never_off(llm_server: LLMServer, ada: Agent, settings: Settings) -> None:
    settings.TURN_PIPELINE, settings.TURN_MAX_REVISIONS = [f"{__name__}.Required"], 1
    llm_server.respond = acts(lambda body: "Said.")

    played(ada, QUARREL)

    assert [entry["stage"] for run in Run.objects.all() for entry in run.trace] == ["refusing"]


def test_the_actor_model_is_chosen_for_the_play_alone(llm_server: LLMServer) -> None:
    own = make_agent("ada", model_id="her-own-model")
    llm_server.respond = acts(lambda body: "Yes.")

    found = played(own, QUARREL, actor_model="next-model")
    plain = played(own, QUARREL)

    assert {body["model"] for body in llm_server.bodies[:2]} == {"next-model"}
    assert {body["model"] for body in llm_server.bodies[2:]} == {"her-own-model"}
    assert (found.actor_model, plain.actor_model) == ("next-model", "her-own-model")
    assert found.id != plain.id
    own.refresh_from_db()
    assert own.model_id == "her-own-model"


def test_without_a_key_the_scripted_actor_goes_through_its_lines(scripted: Agent) -> None:
    found = played(scripted, HELLO, QUARREL, Situation("third", ("Go on.", "And?", "So?")))

    own = [text for _, _, who, text in said(found) if who == "Ada"]
    assert sorted(own) == [f"Line {n}." for n in range(6)], "every line once"


def test_a_play_that_was_measured_is_played_anew_unless_it_may_be_used_again(scripted: Agent) -> None:
    first = played(scripted)
    unmeasured = played(scripted)
    make_run(scripted, played=True, where={"play": first.id})

    again = played(scripted, reuse=True)
    anew = played(scripted)

    assert first.id == unmeasured.id == again.id
    assert not first.taken_up
    assert unmeasured.taken_up
    assert anew.id == first.id.replace("-1", "-2")
    assert Run.objects.count() == 6


def test_progress_counts_lines(scripted: Agent) -> None:
    told: list[tuple[int, int]] = []

    played(scripted, progress=lambda done, total: told.append((done, total)))

    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_changed_prompt_is_another_play(scripted: Agent) -> None:
    first = played(scripted)
    scripted.system_prompt = "You are Ada, and you shout."
    save_persona(agent=scripted, note="louder")

    second = played(scripted)

    assert first.id.partition("-")[0] != second.id.partition("-")[0]
    assert first.persona_digest != second.persona_digest


def test_a_persona_in_japanese_is_played_like_any_other(settings: Settings) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"
    lines = ["お茶が入りました。", "はい、すぐに。", "申し訳ございません。"]
    hana = make_agent("hana", display_name="花", system_prompt="あなたは花です。", sample_lines=lines)

    found = played(hana, Situation("greeting", ("おはようございます。",), speaker="お客様"), HELLO)

    assert sorted(text for _, _, who, text in said(found) if who == "花") == sorted(lines)
    assert said(found)[0][2:] == ("お客様", "おはようございます。")


@pytest.mark.parametrize(("options", "message"), [({"repeats": 0}, "repeats 0: 1 to 20"), ({"repeats": 21}, "1 to 20")])
def test_what_makes_no_sense_is_refused(scripted: Agent, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        played(scripted, **options)


def test_no_situation_is_refused(scripted: Agent) -> None:
    with pytest.raises(ValueError, match="no situation to play"):
        play(agent=scripted, situations=())


def test_the_calls_of_a_play_are_in_the_ledger(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.respond = acts(lambda body: "Yes.")

    played(ada, *TWO)

    assert LLMCall.objects.filter(agent=ada, purpose="turn").count() == 6
