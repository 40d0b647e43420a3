"""The page of an agent's gate: what thresholds would have sent back, what the gate is to do, undo and conflicts, a sentence to check."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent, Channel, Message
from correction.admin.review import alarms
from correction.config.configure import ConfigConflict, configure
from correction.config.settings import resolve_config
from correction.gate.observe import CheckEstimate, estimate_check, judge_later, work_one
from correction.models import AgentEvaluationConfig, CorrectionLog, ObservedMessage
from tests.console import HOSTILE, plain, queries, read, signed_in, staff, viewer
from tests.correction.config_page import filled_in, own, url_of
from tests.correction.gating import judge
from tests.correction.judged_drafts import MODEL, OFFLINE
from tests.correction.test_thresholds import judged
from tests.factories import make_agent, make_channel, speaking
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(settings: Settings) -> None:
    settings.JUDGE_MODEL = MODEL


def gate_page(agent: Agent | None, query: str = "") -> str:
    return url_of(agent, "gate", query)


def card(html: str, dimension: str = "adherence") -> str:
    return html.split(f'id="threshold-{dimension}"')[1].split("</fieldset>")[0]


def numbers(html: str) -> dict[str, Any]:
    got = re.search(r"data-counts>(.*?)</script>", card(html))
    assert got is not None
    return dict(json.loads(unescape(got[1])))


def press(client: Client, agent: Agent | None, button: str, html: str = "", **typed: Any) -> Any:
    """Fill in the form as it was shown (`html`, or now) and press one of its buttons."""
    shown = filled_in(html or read(client, gate_page(agent)))
    return client.post(gate_page(agent), {**shown, **typed, button: ""}, follow=True)


def have_judged(client: Client, agent: Agent, *dimensions: str) -> Any:
    query = "&".join(f"check={dimension}" for dimension in dimensions)
    return client.post(gate_page(agent, f"?{query}"), {"_judge": "new", "check": "consistency"}, follow=True)


def shown_back(html: str) -> list[str]:
    """The messages that are listed as sent back."""
    rows = re.findall(
        r"<tr ([^>]*)>(.*?)</tr>", html.partition("data-messages")[2].partition("</tbody>")[0], flags=re.S
    )
    return re.findall(
        r"Remark [\d.]+\.", plain(" ".join(row for attributes, row in rows if "hidden" not in attributes))
    )


# -- replay
def test_a_typed_threshold_is_counted_with_its_messages_and_nothing_is_stored(root: Client) -> None:
    ada = make_agent()
    judged(ada, 6.0, 8.0, 9.0)
    judged(ada, 1.0, 4.5, mark="right")
    judged(ada, 4.0, source="observe", mark="false_alarm")
    judged(make_agent("bob"), 1.0)
    shown = read(root, gate_page(ada))
    assert "3 of 6 (50 %)" in plain(card(shown))
    assert "2 of 3 marked alarms below it were right, 67 % (95 % interval 21 to 94 %)" in plain(card(shown))
    assert shown_back(shown) == ["Remark 1.0.", "Remark 4.0.", "Remark 4.5."]

    html = press(root, ada, "_count", adherence="4.5").content.decode()
    text = plain(card(html))
    assert "2 of 6 (33 %)" in text
    assert "With the 5 in effect: 3 of 6 (50 %)." in text
    assert numbers(html)["drafts"] == [[10, 1], [40, 1], [45, 1], [60, 1], [80, 1], [90, 1]]
    assert numbers(html)["marks"] == [[10, 1, 0], [40, 0, 1], [45, 1, 0]]
    assert shown_back(html) == ["Remark 1.0.", "Remark 4.0."]
    assert "4 of 7 (57 %)" in plain(card(read(root, gate_page(None)))), "the defaults are tried on those of all agents"
    assert not AgentEvaluationConfig.objects.exists(), "nothing is stored before a person saves it"


def test_offline_scores_are_apart_and_marked_heuristic(root: Client) -> None:
    ada = make_agent()
    judged(ada, 2.0, judge=OFFLINE, mark="right")
    assert "No message is scored for adherence yet" in plain(read(root, gate_page(ada)))

    text = plain(read(root, gate_page(ada, "?judge=heuristic")))
    assert "heuristic lexical-1" in text
    assert "1 of 1 (100 %)" in text
    assert "1 of 1 marked alarms" in text


def test_what_is_not_allowed_is_explained_and_the_one_in_effect_counts(root: Client) -> None:
    ada, typed = make_agent(), "%3Cscript%3Ealert(1)"
    judged(ada, 4.0, 8.0)
    html = read(root, gate_page(ada, f"?adherence={typed}"))

    assert "allowed: 0 to 9" in html
    assert "1 of 2 (50 %)" in plain(html)
    assert "<script>alert" not in html


def test_unjudged_messages_are_judged_on_request(root: Client, llm_server: LLMServer) -> None:
    ada = speaking("ada", ["As per my last mail.", "Hooray!", "Noted."])
    text = plain(read(root, gate_page(ada)))
    assert "None of the last 3 messages is scored" in text
    assert "Judge the 3 not judged 3 calls" in text
    two = plain(read(root, gate_page(ada, "?check=adherence&check=fluency")))
    assert "For adherence, fluency: 2 calls a message" in two

    answer = have_judged(root, ada, "adherence", "fluency")
    assert "3 of them wait to be judged, and no worker is alive" in plain(answer.content.decode())
    assert have_judged(root, ada, "adherence").status_code == 200
    assert ObservedMessage.objects.count() == 3, "what waits is not queued twice"
    llm_server.respond = judge({"adherence": 2, "fluency": 7})
    while work_one(owner="w"):
        pass

    assert llm_server.calls == 6
    html = read(root, gate_page(ada))
    assert "3 of 3 (100 %)" in plain(card(html))
    assert "0 of 3 (0 %)" in plain(card(html, "fluency"))
    assert "Judge the" not in html
    assert resolve_config(ada).gate_is_off
    assert judge_later(messages=list(Message.objects.all()), dimensions=["consistency"]) == 3


def test_the_estimate_has_calls_and_dollars_and_asks_no_model(llm_server: LLMServer, settings: Settings) -> None:
    ada = speaking("ada", ["One.", "Two."])

    def needs(judge: str, *dimensions: str) -> CheckEstimate:
        settings.JUDGE_MODEL = judge
        return estimate_check(message=Message.objects.latest("pk"), agent=ada, dimensions=dimensions)

    one, two = needs(MODEL, "adherence"), needs(MODEL, "adherence", "fluency")
    assert (one.calls, two.calls, one.seconds) == (1, 2, None)
    assert 0 < (one.cost_usd or 0) < (two.cost_usd or 0)
    assert needs("model-without-a-price", "adherence").cost_usd is None
    offline = needs(OFFLINE, "adherence")
    assert (offline.calls, offline.cost_usd) == (0, Decimal(0))
    assert llm_server.calls == LLMCall.objects.count() == 0


def test_texts_are_shown_to_those_who_may_read_messages_and_escaped(root: Client) -> None:
    ada = make_agent()
    (message,) = judged(ada, 1.0)
    Message.objects.filter(pk=message.pk).update(text=HOSTILE)

    html = read(root, gate_page(ada))
    assert "alert(&#x27;x&#x27;)" in html
    assert HOSTILE not in html
    half = signed_in(staff("correction.view_agentevaluationconfig"))
    assert "alert" not in read(half, gate_page(ada)).partition("data-messages")[2].partition("</tbody>")[0]


# -- off, observe, enforce
def test_the_mode_is_stored_for_what_is_ticked_and_undone(root: Client) -> None:
    ada, mode = make_agent(), "observe"
    answer = press(root, ada, "_save", gate_mode=mode, check=["fluency"], fluency="6.5", reason="since build 41")
    assert own(ada) == {"gate_mode": mode, "gate_fluency_enabled": True, "gate_fluency_threshold": Decimal("6.5")}
    text = plain(answer.content.decode())
    assert "Messages are sent at once and judged for" in text
    assert "“since build 41”" in text

    undo = re.search(r'name="undo" value="(\d+)"', answer.content.decode().partition('id="changes"')[2])
    assert undo is not None
    root.post(url_of(ada, "target_history"), {"undo": undo[1]})
    assert own(ada) == {}
    assert resolve_config(ada).gate_is_off
    again = press(root, ada, "_save", gate_mode=mode, check=["fluency"], fluency="6.5").content.decode()
    assert again.partition('id="changes"')[2].count('name="undo"') == 1, (
        "of what was changed again only the last change"
    )


def test_a_threshold_alone_does_not_switch_the_gate_on(root: Client) -> None:
    """Where nothing sets the mode, a check that is enabled enforces at once: the page stores what it showed."""
    ada = make_agent()
    press(root, ada, "_save", check=["adherence", "fluency"], adherence="4")
    assert own(ada) == {"gate_mode": "off", "gate_adherence_threshold": Decimal(4)}

    press(root, ada, "_save", gate_mode="observe", check=["adherence"], adherence="4")
    press(root, ada, "_save", check=["adherence", "consistency"])
    assert resolve_config(ada).gate_mode == "observe"
    assert resolve_config(ada).gate_dimensions == ("adherence", "consistency")


def test_a_gate_that_is_on_needs_something_to_check(root: Client) -> None:
    ada = make_agent()
    answer = press(root, ada, "_save", gate_mode="enforce", check=[])

    assert "tick at least one of adherence, consistency, fluency" in plain(answer.content.decode())
    assert not AgentEvaluationConfig.objects.exists()


def test_a_change_of_the_defaults_is_asked_about_first(root: Client) -> None:
    ada = make_agent()
    asked = press(root, None, "_save", gate_mode="observe", check=["adherence"]).content.decode()
    assert "1 agent inherits this" in plain(asked)
    assert resolve_config(ada).gate_is_off

    press(root, None, "_save", gate_mode="observe", check=["adherence"], confirmed="1")
    assert resolve_config(ada).gate_mode == "observe"


# -- two writers
def test_what_another_person_changed_meanwhile_stays_and_a_conflict_is_decided(root: Client) -> None:
    ada, anna = make_agent(), staff(username="anna")
    configure(agent=ada, changes={"gate_mode": "observe", "gate_adherence_enabled": True})
    page = read(root, gate_page(ada))
    configure(agent=ada, changes={"gate_mode": "enforce", "gate_fluency_enabled": True}, user=anna)

    press(root, ada, "_save", page, adherence="4")
    assert resolve_config(ada).gate_mode == "enforce", "root did not touch the mode"
    assert resolve_config(ada).threshold("adherence") == 4
    answer = press(root, ada, "_save", page, gate_mode="off").content.decode()
    assert "gate_mode was set to enforce by anna" in plain(answer)
    assert resolve_config(ada).gate_mode == "enforce"
    assert re.search(r'value="off" checked', answer), "what was chosen stands in the form"

    press(root, ada, "_save", answer)
    assert resolve_config(ada).gate_mode == "off"


def test_a_conflict_is_found_where_no_other_writer_can_come_between() -> None:
    ada = make_agent()
    configure(agent=ada, changes={"gate_mode": "observe"})
    with pytest.raises(ConfigConflict, match="gate_mode was set to observe"):
        configure(agent=ada, changes={"gate_mode": "off"}, seen={"gate_mode": None})
    assert own(ada) == {"gate_mode": "observe"}
    configure(agent=ada, changes={"gate_mode": "observe"}, seen={"gate_mode": None})  # both want the same


# -- a sentence
def test_a_sentence_is_judged_and_logged_as_an_external_check(root: Client, llm_server: LLMServer) -> None:
    ada = make_agent()
    llm_server.respond = judge({"adherence": 2, "consistency": 8, "fluency": 8})
    answer = root.post(gate_page(ada, "?filled_in=1"), {"_check": "", "draft": f"Hooray! {HOSTILE}"})
    html = answer.content.decode()
    text = plain(html.partition('id="check"')[2])

    assert "sent back by test-model" in text
    assert "adherence was looked at" in text
    assert "The feedback the agent would get Your draft was sent back" in text
    assert HOSTILE not in html
    session = CorrectionLog.objects.get().session
    assert (session.source, session.agent, session.tags, session.message) == (
        "external",
        ada,
        {"from": "console"},
        None,
    )
    assert not alarms().exists()  # no agent wrote it: nobody is asked whether the alarm is right
    empty = plain(root.post(gate_page(ada), {"_check": "", "draft": "  "}).content.decode())
    assert "draft:" in empty.partition("Check a sentence")[2]
    assert (CorrectionLog.objects.count(), Message.objects.count()) == (1, 0)


# -- who may
def test_who_may_only_view_may_count_and_is_offered_nothing_else() -> None:
    ada, looking = make_agent(), signed_in(viewer())
    judged(ada, 2.0)
    html = read(looking, gate_page(ada))

    assert "1 of 1 (100 %)" in plain(html)
    assert not [button for button in ("_save", "_judge", "_check") if f'name="{button}"' in html]
    counted = plain(press(looking, ada, "_count", check=["adherence"], adherence="1").content.decode())
    assert "Together: 0 of 1 (0 %) messages" in counted
    statuses = [looking.post(gate_page(ada), {button: ""}).status_code for button in ("_save", "_judge", "_check")]
    assert statuses == [403] * 3
    assert signed_in(staff("correction.view_correctionlog")).get(gate_page(ada)).status_code == 403


def test_the_number_of_queries_does_not_grow(root: Client) -> None:
    ada = make_agent()
    judged(ada, *[2.0] * 20, mark="right")  # more than a judge is shown
    few = [len(queries(root, gate_page(agent))) for agent in (ada, None)]
    for number in range(3):
        judged(make_agent(f"a{number}"), 1.0, 5.5, 8.0)
        judged(ada, number + 0.5)
    judged(ada, 1.0, 1.5, mark="false_alarm")

    assert [len(queries(root, gate_page(agent))) for agent in (ada, None)] == few


def test_shares_of_sampled_conversations_say_that_they_are_weighted(root: Client) -> None:
    ada = make_agent()
    rare = make_channel("rare")
    Channel.objects.filter(pk=rare.pk).update(inclusion_probability=0.1)
    judged(ada, 1.0, channel=rare)
    judged(ada, 8.0, 9.0, channel=make_channel("common"))
    html = read(root, gate_page(ada))
    assert "1 of 3 (weighted 83 %)" in plain(card(html))
    assert "1 of 3 (weighted 83 %) messages would have been sent back" in plain(html)
    assert numbers(html)["weights"] == [[10, 10.0], [80, 1.0], [90, 1.0]]
    assert 'data-weight="12.0"' in html
