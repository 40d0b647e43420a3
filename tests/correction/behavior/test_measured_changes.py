"""An agent evaluated before and after: behaviour that somebody asked for is no drift, the same behaviour that nobody asked for is."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import Settings

from agents.persona import changes_since
from correction.behavior.applying import revert_request
from evaluation.change.baselines import is_stale, stale_reasons
from evaluation.models import Baseline
from tests.correction.behavior.measured import (
    TRAIT_CLAIM,
    against_baseline,
    ask_for,
    clerk,
    measured,
    reads,
    speak,
    worse,
)
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
# what the persona says at first, whether the agent did it, what is asked for, and what it does from then on
STARTS = (0.0, False, "Please use emoji in every message.", 0.95, True)
STOPS = (0.95, True, "Stop using emoji.", 0.0, False)
BOTH_WAYS = pytest.mark.parametrize(("strength", "before", "asked", "becomes", "after"), [STARTS, STOPS])


@BOTH_WAYS
def test_behaviour_that_was_asked_for_is_no_drift(
    llm_server: LLMServer, settings: Settings, tmp_path: Path, strength: float, before: bool, asked: str, becomes: float, after: bool
) -> None:  # fmt: skip
    agent, channel = clerk(settings, tmp_path / "p", strength)
    speak(agent, channel, "1", emoji=before)
    measured(llm_server, agent, "1", is_baseline=True)
    request = ask_for(llm_server, channel, asked, becomes)
    speak(agent, channel, "2", emoji=after)

    run = measured(llm_server, agent, "2")
    found = against_baseline(run)

    assert worse(found) == []
    assert found.changed == (f"adherence/{TRAIT_CLAIM}",), "left out, and named"
    assert found.dimensions[0].verdict == "steady"
    assert {c.proposition for c in found.propositions["adherence"]} == {"voice", "polite"}, "what is the same in both"
    change = f"version 2, behaviour request {request.pk} by anna: emoji use {strength:g} → {becomes:g}"
    assert found.persona_changes == (change,)
    assert change in found.notes[0]
    assert any(TRAIT_CLAIM in note and "the trait it speaks of" in note for note in found.notes)
    assert run.scores.filter(proposition_id=TRAIT_CLAIM).values_list("score", flat=True)[0] == 9, (
        "judged by the new trait"
    )


@BOTH_WAYS
def test_the_same_behaviour_that_nobody_asked_for_is_drift(
    llm_server: LLMServer, settings: Settings, tmp_path: Path, strength: float, before: bool, asked: str, becomes: float, after: bool
) -> None:  # fmt: skip
    agent, channel = clerk(settings, tmp_path / "p", strength)
    speak(agent, channel, "1", emoji=before)
    measured(llm_server, agent, "1", is_baseline=True)
    speak(agent, channel, "2", emoji=after)

    found = against_baseline(measured(llm_server, agent, "2"))

    assert worse(found) == ["adherence", f"adherence/{TRAIT_CLAIM}", "adherence/voice"]
    assert (found.stale, found.changed, found.persona_changes) == (False, (), ())


def test_a_change_that_was_asked_for_hides_no_drift_elsewhere(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False)
    measured(llm_server, agent, "1", is_baseline=True)
    ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, polite=False)

    found = against_baseline(measured(llm_server, agent, "2"))

    assert worse(found) == ["adherence", "adherence/polite"]


def test_a_request_that_is_not_followed_shows_as_drift_once_the_baseline_is_taken_again(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "1", emoji=True)
    measured(llm_server, agent, "1", is_baseline=True)
    speak(agent, channel, "2", emoji=False)

    assert f"adherence/{TRAIT_CLAIM}" in worse(against_baseline(measured(llm_server, agent, "2")))


def test_the_baseline_says_why_it_is_stale_and_a_revert_makes_it_current_again(
    llm_server: LLMServer, settings: Settings, tmp_path: Path
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.0)
    speak(agent, channel, "1", emoji=False)
    measured(llm_server, agent, "1", is_baseline=True)
    baseline = Baseline.objects.get()
    assert stale_reasons([baseline]) == {}
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)

    assert is_stale(Baseline.objects.get())
    assert stale_reasons(Baseline.objects.all()) == {
        baseline.pk: f"version 2, behaviour request {request.pk} by anna: emoji use 0 → 0.95"
    }
    (told,) = changes_since([(agent.pk, baseline.persona_digest)]).values()
    assert [change.number for change in told] == [2]

    revert_request(request=request, user=None)

    assert not is_stale(Baseline.objects.get())


def evaluated(*arguments: str) -> tuple[int, str]:
    """Exit code and output of `manage.py evaluate`."""
    out = StringIO()
    try:
        call_command(
            "evaluate", "--agents", "ada", "--dimensions", "adherence", "--where", "build=2", *arguments, stdout=out
        )
    except (CommandError, SystemExit) as error:
        return int(getattr(error, "returncode", None) or getattr(error, "code", 0) or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_build_passes_with_the_change_that_was_asked_for_and_fails_with_the_same_unasked(
    llm_server: LLMServer, settings: Settings, tmp_path: Path, is_asked_for: bool
) -> None:
    agent, channel = clerk(settings, tmp_path / "p", 0.95)
    speak(agent, channel, "1", emoji=True)
    measured(llm_server, agent, "1", is_baseline=True)
    if is_asked_for:
        request = ask_for(llm_server, channel, "Stop using emoji.", 0.0)
    speak(agent, channel, "2", emoji=False)
    llm_server.respond = reads

    code, printed = evaluated("--json")

    document: dict[str, Any] = json.loads(printed)
    entry = next(value for value in (document.get("runs") or document["agents"]) if value["agent"] == "ada")
    assert code == (0 if is_asked_for else 1), printed
    assert entry["persona_changes"] == (
        [f"version 2, behaviour request {request.pk} by anna: emoji use 0.95 → 0"] if is_asked_for else []
    )
