"""With no key and no network: rules and cues decide, repetition is counted, and the rest is honestly unscored."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_django import Settings

from evaluation.judge.offline import check_draft, score_claim
from tests.correction.gating import gated, logs, outcomes, send, team_file
from tests.factories import talk

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"


def test_an_off_character_draft_is_caught_and_a_better_one_passes() -> None:
    agent, channel = gated("adherence", slug="michael", origin="seed")
    first = send(agent, channel, "Noted. The report is on track and will be submitted as planned, pending approval.")
    assert (first.committed, first.outcome) == (False, "corrected")
    (row,) = logs()[0].dimension_results.all()
    assert (row.score, row.judge) == (1, "offline:lexical-1")
    assert "Michael talks in big, excitable, exaggerated terms" in first.feedback
    second = send(
        agent, channel, "Listen to me, people! As your boss I have decided: this is the best day ever!", session=first.session
    )  # fmt: skip
    assert second.outcome == "passed_after_retry"


def test_what_only_an_llm_can_judge_is_unscored_and_passes() -> None:
    agent, channel = gated("consistency")
    assert send(agent, channel, "I filed it.").outcome == "unscored_passed"
    (row,) = logs()[0].dimension_results.all()
    assert (row.status, row.score) == ("unscored", None)
    assert row.reason.startswith("needs an LLM judge")


def test_hard_adherence_is_more_than_cues_can_judge() -> None:
    agent, channel = gated("adherence", gate_adherence_hard=True)
    send(agent, channel, "I filed it.")
    assert "hard mode" in str(logs()[0].dimension_results.get().parts)


def test_fluency_counts_what_the_agent_said_before() -> None:
    agent, channel = gated("fluency")
    talk(agent, ["Hey everyone, just wanted to say the forms are due today."], channel=channel)
    again = send(agent, channel, "Hey everyone, just wanted to say the forms are due.")
    assert not again.committed
    assert "hey everyone just" in again.feedback
    assert send(agent, channel, "My desk drawer is stuck; who has a crowbar?").outcome == "unscored_passed"
    assert outcomes() == ["corrected", "unscored_passed"], "n-grams prove repetition, not its absence"


def repetition(draft: str, *history: str) -> int | None:
    return score_claim({"cues": None, "measure": "repetition", "hard": False}, [draft], history).get("value")


def test_repetition_of_a_draft_is_measured_against_earlier_messages_only() -> None:
    assert repetition("one two three four five", "six seven eight nine") is None
    assert repetition("one two three four five", "one two three four five") == 0
    assert repetition("one two three four. Five six seven!", "ONE, two; three four") == 3  # 2 of 5 3-grams
    assert repetition("one two three four. Five six seven!", "ONE, two; three") is None  # 1 of 5
    assert repetition("one two three one two three one two three", "something else entirely") is None
    assert repetition("one two three four five") is None
    assert repetition("one two", "one two three") is None
    assert repetition("Yes.", "Yes.") is None, "a short answer may be given twice"


def verdicts(slug: str, text: str, *, cues: bool) -> dict[str, tuple[str, int | None]]:
    got = check_draft(agent_slug=slug, text=text, channel_kind="public", is_reply=False, cues=cues)
    return {p.id: (v.status, v.value) for p, v in got}


def test_cues_are_only_looked_at_when_asked_for() -> None:
    text = "I'd be happy to help! Here is a summary."
    assert "default-generic-assistant" not in verdicts("ada", text, cues=False)
    assert verdicts("ada", text, cues=True)["default-generic-assistant"] == ("scored", 1)  # inverted
    assert verdicts("ada", "No.", cues=True)["default-generic-assistant"] == ("unscored", None)


@pytest.mark.parametrize(("kind", "expected"), [("public", ("trivial", 9)), ("dm", ("scored", 0))])
def test_a_false_precondition_makes_a_rule_trivial(
    tmp_path: Path, settings: Settings, kind: str, expected: tuple[str, int]
) -> None:
    team_file(settings, tmp_path, "adherence/ada.yaml", "precondition: in_direct_message\n    rule: {max_words: 1}")
    got = check_draft(agent_slug="ada", text="two words", channel_kind=kind, is_reply=False, cues=False)
    assert [(v.status, v.value) for p, v in got if p.id == "ada-own"] == [expected]


def test_no_single_draft_is_held_to_a_rule_of_several_messages(tmp_path: Path, settings: Settings) -> None:
    team_file(settings, tmp_path, "adherence/ada.yaml", "of_ten: 5\n    rule: {contains_any: [ahoy]}")
    assert "ada-own" not in verdicts("ada", "two words", cues=True)


def test_an_inverted_rule_is_turned_over(tmp_path: Path, settings: Settings) -> None:
    team_file(settings, tmp_path, "adherence/ada.yaml", "inverted: true\n    rule: {max_words: 1}")
    assert verdicts("ada", "two words", cues=False)["ada-own"] == ("scored", 9)
    assert verdicts("ada", "one", cues=False)["ada-own"] == ("scored", 0)
