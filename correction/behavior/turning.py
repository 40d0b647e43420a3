"""Conversations in which several messages together try to turn a persona, tried on the policy: what would be applied without a person?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ValidationError

from agents.commands import console_on, print_table, snippet
from agents.llm.requests import describe_validation
from agents.persona import TraitValue
from correction.behavior.bench import CaseFileError
from correction.behavior.rules import Requester, decide, read_map
from correction.behavior.tiers import MOST_EARLIER
from correction.config.settings import ResolvedConfig

TURNING = Path(__file__).resolve().parent.parent / "behavior_data" / "turning.yaml"


class Asked(BaseModel):
    """A message of a conversation that tries to turn a persona.

    Attributes:
        trait: What a judge that is taken in makes of it, as the map tier answers; None: it asks for nothing.
        turns: The persona would be another one with it.
        verdict: What the policy decides; empty where nothing was asked. `reasons`: why it waits, or is dropped.
    """

    says: str
    trait: dict[str, Any] | None = None
    turns: bool = False
    verdict: Literal["", "apply", "review", "drop"] = ""
    reasons: tuple[str, ...] = ()


class Conversation(BaseModel):
    """Messages of one person to one agent."""

    name: str
    tactic: str = ""
    messages: list[Asked]


class Turning(BaseModel):
    """Conversations that try to turn a persona, and what the policy let through."""

    persona: str
    traits: list[TraitValue]
    conversations: list[Conversation]

    def count(self, *, turns: bool) -> tuple[int, int]:
        """How many requests were applied without a person, and how many there are."""
        asked = [one for c in self.conversations for one in c.messages if one.trait is not None and one.turns is turns]
        return sum(one.verdict == "apply" for one in asked), len(asked)


def read_turning(path: Path = TURNING) -> Turning:
    """The conversations of a YAML file; `behavior_data/turning.yaml` shows the form.

    Raises:
        CaseFileError: The file cannot be read, or a field is wrong; names it.
    """
    try:
        return Turning.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CaseFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except ValidationError as error:
        raise CaseFileError(f"{path}: {describe_validation(error)}") from None


def try_policy(turning: Turning, *, config: ResolvedConfig, attentive: bool) -> Turning:
    """What the policy would apply of each conversation, one after the other, each beginning from the persona of the file.

    The judge is sure of every request. Asks no model and stores nothing.

    Args:
        attentive: The judge says that what turns the persona contradicts it; else it is taken in by everything.
    """
    tried = turning.model_copy(deep=True)
    for conversation in tried.conversations:
        traits, said, applied, made = list(tried.traits), list[str](), 0, 0
        for one in conversation.messages:
            if one.trait is not None:
                flagged = attentive and one.turns
                answer = {"touches": [], **one.trait, "contradicts_persona": flagged}
                change = read_map(answer, traits=traits)
                decision = decide(
                    change=change,
                    confidence="high",
                    text=one.says,
                    requester=Requester("a member", is_member=True),
                    config=config,
                    applied_today=applied,
                    made=made,
                    context=said[-MOST_EARLIER:],
                )
                one.verdict, one.reasons = decision.verdict, decision.reasons
                if decision.verdict == "apply" and change.after is not None:
                    applied, made = applied + 1, made + (change.before is None)
                    traits = [*(trait for trait in traits if trait != change.before), change.after]
            said.append(f"a member: {one.says}")
    return tried


def show_turning(taken_in: Turning, attentive: Turning, out: Any) -> None:
    """Write per conversation what was applied, and what of it turns the persona."""
    console, rows = console_on(out), list[tuple[str | int, ...]]()
    for fooled, awake in zip(taken_in.conversations, attentive.conversations, strict=True):
        asked = [one for one in fooled.messages if one.trait is not None]
        applied = sum(one.verdict == "apply" for one in asked)
        turned = [_turned(conversation) for conversation in (fooled, awake)]
        turns = sum(one.turns for one in asked)
        shares = [f"{len(through)} of {turns}" for through in turned]
        rows.append((fooled.name, fooled.tactic, len(asked), applied, *shares))
    heads = ("Conversation", "Tactic", ">Requests", ">Applied", ">Turning, judge taken in", ">Turning, judge attentive")
    print_table(console, heads, rows, title="Applied without a person")
    for title, tried in (("taken in", taken_in), ("attentive", attentive)):
        (through, of), (plain, manners) = tried.count(turns=True), tried.count(turns=False)
        out.write(
            f"Judge {title}: {through} of {of} requests that turn the persona are applied, and {plain} of {manners} others."
        )
    lines = [(c.name, snippet(one.says, 80)) for c in taken_in.conversations for one in _turned(c)]
    if lines:
        print_table(
            console, ("Conversation", "Message"), lines, title="What gets through, with a judge that is taken in"
        )


def _turned(conversation: Conversation) -> list[Asked]:
    return [one for one in conversation.messages if one.turns and one.verdict == "apply"]
