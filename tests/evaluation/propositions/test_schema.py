"""The schema of propositions, what they inherit, their variables and their digest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evaluation.propositions.preconditions import PRECONDITIONS, Target
from evaluation.propositions.schema import (
    Proposition,
    PropositionFile,
    fill,
    prompts_digest,
    propositions_digest,
    resolve,
)


def file_of(*specs: dict[str, Any], **fields: Any) -> PropositionFile:
    return PropositionFile.model_validate({"dimension": "adherence", **fields, "propositions": list(specs)})


def spec(**fields: Any) -> dict[str, Any]:
    return {"id": "terse", "claim": "{{agent_name}} is terse", **fields}


def resolved(file_fields: dict[str, Any] | None = None, **fields: Any) -> Proposition:
    file = file_of(spec(**fields), **(file_fields or {}))
    return resolve(file.propositions[0], file, "x.yaml:3")


def complaint(*specs: dict[str, Any], **fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        file_of(*specs, **fields)
    return str(caught.value)


# -- what is left out
def test_defaults_of_the_specification_ac_6_0_9_ac_6_0_12() -> None:
    result = resolved()

    assert (result.first_n, result.last_n) == (10, 100)
    assert (result.include_personas, result.target_type, result.weight) == (True, "agent", 1.0)
    assert not result.inverted
    assert not result.hard
    draft = resolved({"level": "action"})
    assert (draft.first_n, draft.last_n) == (5, 10)


@pytest.mark.parametrize(
    ("dimension", "target"),
    [
        ("consistency", "agent"),
        ("fluency", "agent"),
        ("convergence", "environment"),
        ("ideas_quantity", "environment"),
    ],
)
def test_only_adherence_is_judged_with_the_persona_unless_a_file_says_so_ac_6_2_4_ac_6_3_5_ac_6_4_6_ac_6_6_5(
    dimension: str, target: str
) -> None:
    spec = {"id": "apart", "claim": "the voices differ"}
    file = file_of(spec, dimension=dimension, target_type=target)

    assert not resolve(file.propositions[0], file, "x.yaml:3").include_personas
    assert resolved().include_personas


def test_a_proposition_overrides_its_file_which_overrides_defaults_ac_6_0_12() -> None:
    file = {"first_n": 3, "last_n": 7, "include_personas": False}

    assert (resolved(file).first_n, resolved(file).last_n, resolved(file).include_personas) == (3, 7, False)
    own = resolved(file, first_n=0, last_n=1, include_personas=True)
    assert (own.first_n, own.last_n, own.include_personas) == (0, 1, True)


# -- what is refused, and how
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"wieght": 1}, "Extra inputs are not permitted"),
        ({"weight": 0}, "greater than 0"),
        ({"id": "Not Kebab"}, "should match pattern"),
        ({"claim": ""}, "at least 1 character"),
        (
            {"claim": "{{mood}} is bad"},
            "unknown variable {{mood}}; allowed: {{agent_name}}, {{channel_name}}, {{action}}",
        ),
        ({"precondition": "full_moon"}, "unknown precondition 'full_moon'; allowed: asks_something, has_ten_words,"),
        ({"measure": "luck"}, "Input should be 'repetition'"),
        ({"hard": True, "inverted": True}, "hard and inverted exclude each other"),
        ({"rejected": True}, "rejected: true needs active: false"),
        ({"retired": True, "rejected": True, "active": False}, "retired: true needs active: false"),
        ({"rule": {"max_words": 2}, "cues": {"supports": ["x"]}}, "rule stands alone"),
        ({"rule": {"max_words": 2}, "hard": True}, "rule stands alone"),
        ({"rule": {}}, "a rule needs at least one check; allowed: max_sentences,"),
        ({"rule": {"matches": "("}}, "not a valid regular expression"),
        ({"cues": {}}, "cues need at least one entry"),
        ({"cues": {"supports": ["  "]}}, "an empty phrase"),
        ({"cues": {"supports": ["/(?:a{999}){999}/"]}}, "is too large"),
    ],
)
def test_a_wrong_field_is_refused_with_what_is_allowed(fields: dict[str, Any], words: str) -> None:
    assert words in complaint(spec(**fields))


@pytest.mark.parametrize(
    ("fields", "about", "words"),
    [
        ({"claim": "{{action}} is kind"}, {}, "terse: {{action}} has no value in adherence at evaluation level; usable: agent_name"),
        ({"claim": "rambles in {{channel_name}}"}, {"dimension": "fluency"}, "{{channel_name}} has no value in fluency"),
        ({"rule": {"max_words": 5}}, {"dimension": "fluency"}, "a rule checks one message"),
        ({"precondition": "is_reply"}, {"dimension": "fluency"}, "a precondition looks at one message"),
        ({"first_n": 0, "last_n": 1}, {"dimension": "fluency"}, "needs at least 2 events"),
        ({}, {"dimension": "fluency", "target_type": "environment"}, "fluency is measured of one agent"),
        ({"include_personas": True}, {"dimension": "fluency"}, "fluency is measured without the persona"),
        ({}, {"dimension": "consistency", "include_personas": True}, "consistency is measured without the persona"),
        ({}, {"dimension": "ideas_quantity", "target_type": "environment", "include_personas": True}, "without the persona"),
    ],
)  # fmt: skip
def test_what_the_dimension_or_level_does_not_allow_is_refused(
    fields: dict[str, Any], about: dict[str, str], words: str
) -> None:
    assert words in complaint(spec(**fields), **about)


def test_a_draft_may_be_judged_for_fluency_with_the_persona_in_sight() -> None:
    fields = {"dimension": "fluency", "level": "action"}

    assert resolved(fields, include_personas=True).include_personas


def test_a_file_has_propositions_each_with_its_own_id() -> None:
    assert "at least 1 item" in complaint()
    assert "the id 'terse' stands twice in this file" in complaint(spec(), spec(claim="again"))
    assert file_of(spec(claim="{{action}} is kind"), level="action")


# -- variables (AC-6.0.3)
def test_variables_are_filled_in_ac_6_0_3() -> None:
    text = fill("{{agent_name}} in {{ channel_name }}", {"agent_name": "Ada", "channel_name": "#office"})

    assert text == "Ada in #office"
    # a value that looks like a variable stays as it is
    values = {"agent_name": "{{channel_name}}", "channel_name": "\\1 \\g<0>"}

    assert fill("{{agent_name}}/{{channel_name}}", values) == "{{channel_name}}/\\1 \\g<0>"


def test_a_variable_without_a_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"uses \{\{action\}\}, which has no value here; given: agent_name"):
        fill("{{action}}", {"agent_name": "Ada"})
    with pytest.raises(ValueError, match="given: none"):
        fill("{{action}}", {})


@given(st.text(), st.text())
def test_filling_touches_nothing_but_variables(name: str, around: str) -> None:
    around = around.replace("{", "(").replace("}", ")")

    assert fill(around + "{{agent_name}}" + around, {"agent_name": name}) == around + name + around


# -- preconditions (AC-6.0.15)
@pytest.mark.parametrize(
    ("name", "target", "holds"),
    [
        ("is_reply", Target("yes", is_reply=True), True),
        ("is_reply", Target("yes"), False),
        ("in_direct_message", Target("yes", "dm"), True),
        ("in_direct_message", Target("yes", "public"), False),
        ("in_group", Target("yes", "private"), True),
        ("in_group", Target("yes", "dm"), False),
        ("asks_something", Target("why？"), True),
        ("asks_something", Target("why."), False),
        ("has_ten_words", Target("one two three four five six seven eight nine ten"), True),
        ("has_ten_words", Target("one two three four five six seven eight nine"), False),
    ],
)
def test_preconditions_look_at_the_message_and_its_place_ac_6_0_15(name: str, target: Target, holds: bool) -> None:
    assert PRECONDITIONS[name](target, {}, {}) is holds


# -- digest
@pytest.mark.parametrize(
    "change",
    [
        {"claim": "{{agent_name}} is long-winded"},
        {"weight": 2.0},
        {"inverted": True},
        {"hard": True},
        {"include_personas": False},
        {"first_n": 1},
        {"last_n": 1},
        {"precondition": "is_reply"},
        {"rule": {"max_words": 3}},
        {"cues": {"supports": ["no"]}},
        {"measure": "repetition"},
    ],
)
def test_whatever_can_change_a_score_changes_the_digest(change: dict[str, Any]) -> None:
    assert propositions_digest([resolved()]) != propositions_digest([resolved(**change)])


def test_a_new_judge_prompt_changes_the_digest_of_judged_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, ruled = resolved(), resolved(rule={"max_words": 3})
    before = [propositions_digest([p]) for p in (judged, ruled)]
    app = apps.get_app_config("evaluation")
    folder = shutil.copytree(Path(app.path) / "templates/prompts/judge", tmp_path / "templates/prompts/judge")
    (folder / "rubric.md").write_text("Score how true each claim is.")

    monkeypatch.setattr(app, "path", str(tmp_path))
    prompts_digest.cache_clear()
    after = [propositions_digest([p]) for p in (judged, ruled)]
    prompts_digest.cache_clear()

    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_what_changes_no_score_leaves_the_digest() -> None:
    advice, other = resolved(recommendations_for_improvement="Say less."), resolved(id="other")

    assert propositions_digest([resolved(), other]) == propositions_digest([other, advice])
