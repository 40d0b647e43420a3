"""When a question is asked back, when an assumption is made, and when the reply says what it cannot answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Message
from agents.swarm.calibration import MessageCalibration, by_rules
from agents.swarm.clarifier import Decision, decide, settle
from agents.swarm.models import DialogState

UNCLEAR: dict[str, Any] = {
    "risk": 0.6,
    "question": "Which printer do you mean?",
    "assumption": "the printer on this floor",
}
CLEAR: dict[str, Any] = {"risk": 0.0}
DOSE: dict[str, Any] = {
    "risk": 0.9,
    "missing": ["body weight"],
    "question": "How much do you weigh?",
    "cannot": "Not without your weight.",
}


def clarify(text: str, *missing: str) -> Decision:
    return Decision(kind="clarify", text=text, missing=missing)


def assume(text: str) -> Decision:
    return Decision(kind="assume", text=text)


def cannot(text: str, *missing: str) -> Decision:
    return Decision(kind="cannot", text=text, missing=missing)


def talk(state: DialogState, *calibrations: dict[str, Any]) -> list[Decision]:
    """One message after the other, each decided and settled."""
    decisions: list[Decision] = []
    for values in calibrations:
        text = f"message {len(decisions)}"
        decisions.append(decide(MessageCalibration(**values), state, text))
        state.turn += 1
        settle(state, decisions[-1], position=len(decisions))
    return decisions


@pytest.mark.parametrize(
    ("values", "decision"),
    [
        (UNCLEAR, clarify("Which printer do you mean?")),
        ({**UNCLEAR, "question": "There are two. Which one? And for when?"}, clarify("There are two. Which one?")),
        ({**UNCLEAR, "risk": 0.31}, clarify("Which printer do you mean?")),
        ({**UNCLEAR, "risk": 0.30}, assume("the printer on this floor")),
        ({**UNCLEAR, "question": ""}, assume("the printer on this floor")),
        ({"risk": 0.1}, Decision()),
        ({"risk": 0.9}, Decision()),
        (DOSE, clarify("How much do you weigh?", "body weight")),
        ({**DOSE, "risk": 0.0}, clarify("How much do you weigh?", "body weight")),
        ({**DOSE, "assumption": "70 kg"}, clarify("How much do you weigh?", "body weight")),
        (
            {"missing": ["country", "year"]},
            clarify("What I need to know first: country and year?", "country", "year"),
        ),
    ],
)
def test_a_question_is_asked_for_high_risk_or_missing_information(values: dict[str, Any], decision: Decision) -> None:
    assert decide(MessageCalibration(**values), DialogState(), "Hm?") == decision


def test_what_is_required_and_still_missing_is_named_and_never_assumed() -> None:
    asked, answered = talk(DialogState(), DOSE, {**DOSE, "assumption": "about 70 kg"})

    assert asked == clarify("How much do you weigh?", "body weight")
    assert answered == cannot("Not without your weight.", "body weight")


def test_nothing_is_asked_for_twice_however_it_is_worded() -> None:
    reworded = {**DOSE, "question": "Tell me your weight, please?", "cannot": ""}

    decisions = talk(DialogState(), DOSE, {"risk": 0.0}, reworded)

    assert decisions[-1] == cannot("Without body weight I cannot answer that.", "body weight")


def test_the_same_question_is_never_asked_twice() -> None:
    again = {**UNCLEAR, "question": "which printer do you mean, please"}

    assert talk(DialogState(), UNCLEAR, *[CLEAR] * 5, again)[-1] == assume("the printer on this floor")


def test_after_a_question_only_required_information_is_asked_for_within_three_turns() -> None:
    paper = {**UNCLEAR, "question": "Which paper do you mean?"}

    kinds = [[one.kind for one in talk(DialogState(), UNCLEAR, *[CLEAR] * quiet, paper)][-1] for quiet in range(5)]
    required = talk(DialogState(), UNCLEAR, DOSE)[-1]

    assert kinds == ["assume", "assume", "assume", "clarify", "clarify"]
    assert required == clarify("How much do you weigh?", "body weight")


def test_the_message_after_a_question_settles_it_whatever_it_holds() -> None:
    state = DialogState()
    first, second = talk(state, UNCLEAR, {**UNCLEAR, "question": "Which paper do you mean?"})

    assert first.kind == "clarify"
    assert second == assume("the printer on this floor"), "no two questions in a row"
    assert state.pending == {}
    assert [one["question"] for one in state.asked] == ["Which printer do you mean?"]


@given(
    st.lists(
        st.sampled_from([UNCLEAR, DOSE, {"risk": 0.1}, {**UNCLEAR, "question": "Which paper?"}, {"missing": ["day"]}]),
        max_size=12,
    )
)
def test_in_no_conversation_is_the_same_asked_for_twice(
    values: list[dict[str, Any]],
) -> None:
    decisions = talk(DialogState(), *values)

    asked = [one.text for one in decisions if one.kind == "clarify"]
    assert len(asked) == len(set(asked))
    missing = [one.missing for one in decisions if one.kind == "clarify" and one.missing]
    assert len(missing) == len(set(missing))


@pytest.mark.parametrize("text", ["Fix it for me", "Recommend a restaurant"])
def test_without_a_model_nothing_is_asked_but_for_required_information(text: str) -> None:
    message = Message(position=1, text=text, outsider="Priya")

    assert decide(by_rules(trigger=message, transcript=[], state=DialogState()), DialogState(), text) == Decision()


@pytest.mark.parametrize(
    ("earlier", "question", "kind"),
    [
        ("I weigh 70 kg.", "How much ibuprofen may I take?", "nothing"),
        ("I weigh 70 kg.", "How much ibuprofen may my 4-year-old son take?", "clarify"),
        ("My son weighs 20 kg.", "How much ibuprofen may he take?", "nothing"),
        ("Hello.", "I weigh 70 kg and my son 20 kg. How much ibuprofen may he take?", "nothing"),
        ("I bought 5 kg of apples.", "Which dosage of ibuprofen may I take?", "clarify"),
    ],
)
def test_by_rules_alone_the_weight_counts_of_the_one_who_takes_the_dose(earlier: str, question: str, kind: str) -> None:
    before = Message(position=1, text=earlier, outsider="Priya")
    message = Message(position=2, text=question, outsider="Priya")

    calibration = by_rules(trigger=message, transcript=[before, message], state=DialogState())

    assert decide(calibration, DialogState(), question).kind == kind


def test_by_rules_alone_the_weight_of_another_person_in_the_channel_counts_for_nothing() -> None:
    before = Message(position=1, text="I weigh 90 kg.", outsider="Quentin")
    message = Message(position=2, text="How much ibuprofen may I take?", outsider="Priya")

    assert by_rules(trigger=message, transcript=[before, message], state=DialogState()).missing == ["body weight"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("He weighs 20 kg.", "nothing"),
        ("20 kg", "nothing"),
        ("I'm sure he weighs 20 kg.", "nothing"),
        ("I weigh 80 kg, and he 20 kg.", "nothing"),
        ("I weigh 80 kg.", "cannot"),
        ("It is for my son, I weigh 80 kg.", "cannot"),
        ("I'm 80 kg", "cannot"),
        ("No idea.", "cannot"),
        ("I don't know, just assume 20.", "cannot"),
        ("Never mind, what is the capital of Peru?", "nothing"),
    ],
)
def test_a_dose_needs_a_weight_by_rules_alone(answer: str, kind: str) -> None:
    question, state = Message(position=1, text="How much ibuprofen can I give my son?", outsider="Priya"), DialogState()
    first = decide(by_rules(trigger=question, transcript=[], state=state), state, question.text)
    state.position = state.turn = 1
    settle(state, first, position=1)
    reply = Message(position=3, text=answer, outsider="Priya")

    second = decide(by_rules(trigger=reply, transcript=[question, reply], state=state), state, answer)

    assert first.kind == "clarify"
    assert second.kind == kind
