"""Conversations in which several messages together try to turn a persona: what the policy lets through, and what the docs say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.personas.persona import TraitValue
from correction.behavior.policy import Requester, decide
from correction.behavior.tiers import MOST_EARLIER
from correction.behavior.trait_change import read_map
from correction.config.configure import configure
from correction.config.settings import ResolvedConfig, resolve_defaults

pytestmark = pytest.mark.django_db
HERE = Path(__file__).resolve()
DOCS = HERE.parents[3] / "docs" / "explanation" / "behavior-requests.md"


def applied(*, config: ResolvedConfig, attentive: bool) -> list[tuple[bool, bool]]:
    """Per request of `turning.yaml` whether it turns the persona, and whether it is applied without a person.

    The judge is sure of every request. An attentive one says that what turns the persona contradicts it; else it is taken in by all.
    Each conversation begins from the persona of the file.
    """
    data = yaml.safe_load(HERE.with_name("turning.yaml").read_text("utf-8"))
    outcomes: list[tuple[bool, bool]] = []
    for conversation in data["conversations"]:
        traits, said, number, made = [TraitValue(**trait) for trait in data["traits"]], list[str](), 0, 0
        for message in conversation["messages"]:
            if "trait" in message:
                turns = message.get("turns", False)
                change = read_map(
                    {"touches": [], **message["trait"], "contradicts_persona": attentive and turns}, traits=traits
                )
                decision = decide(
                    change=change, confidence="high", text=message["says"], requester=Requester("anna", is_member=True), config=config,
                    applied_today=number, made=made, context=said[-MOST_EARLIER:],
                )  # fmt: skip
                outcomes.append((turns, decision.verdict == "apply"))
                if decision.verdict == "apply" and change.after is not None:
                    number, made = number + 1, made + (change.before is None)
                    traits = [*(trait for trait in traits if trait != change.before), change.after]
            said.append(f"anna: {message['says']}")
    return outcomes


def share(outcomes: list[tuple[bool, bool]], *, turns: bool) -> str:
    verdicts = [is_applied for turning, is_applied in outcomes if turning is turns]
    return f"{sum(verdicts)} of {len(verdicts)}"


@pytest.mark.parametrize(
    "changes", [{}, {"behavior_daily_limit": 3}, {"behavior_daily_limit": 2}, {"behavior_auto_apply": "never"}]
)
def test_the_docs_say_what_gets_through(changes: dict[str, Any]) -> None:
    if changes:
        configure(agent=None, changes=changes)
    taken_in, attentive = (applied(config=resolve_defaults(), attentive=attentive) for attentive in (False, True))

    row = " | ".join((share(taken_in, turns=True), share(attentive, turns=True), share(taken_in, turns=False)))
    assert f"| {row} |" in DOCS.read_text(encoding="utf-8")
    assert share(attentive, turns=True).startswith("0 of")
