"""Refuse a rewriting of a draft that changes what it says: numbers, names, dates, links, code, quotes, negations, content words.

`refusal` makes one sentence of the first difference that a guard names (`agents.kit.text.edits.GUARDS`). Nothing here understands a text:
what a guard cannot tell from a harmless edit it refuses, and then the draft is sent. No model, no database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.text.edits import GUARDS
from agents.kit.text.reading import parse_text
from agents.models import Agent

MOST_LISTED = 5  # differences that a reason names
LONGEST_LISTED = 60  # characters of each


def refusal(
    draft: str,
    polished: str,
    *,
    message: str = "",
    preferences: str = "",
    names: Collection[str] = (),
    rules: Sequence[Callable[[str], bool]] = (),
) -> str:
    """Return why a rewriting may not replace a draft, by the first guard that finds a difference; empty when it may.

    For example ``The polish adds “42” (numbers).``

    Args:
        message, preferences: What the draft answers, and what is known of the reader: their words are no new ones.
        names: Names that are names wherever they stand, as of the agents of the channel.
        rules: Of the agent, see `agent_rules`: true where a text keeps the rule. What the draft broke may stay broken.
    """
    if not polished.strip():
        return "The polish is empty."
    if polished == draft:
        return ""
    parsed_draft = parse_text(draft, names=names, context=f"{message}\n{preferences}")
    parsed_polish = parse_text(polished, names=names)
    for name, guard in GUARDS.items():
        difference = guard(parsed_draft, parsed_polish)
        if difference.added:
            return f"The polish adds {_listed(difference.added)} ({name})."
        if difference.lost:
            return f"The polish loses {_listed(difference.lost)} ({name})."
    for keeps_rule in rules:
        if keeps_rule(draft) and not keeps_rule(polished):
            return "The polish breaks a rule of the agent that the draft keeps (rules)."
    return ""


def _listed(items: Sequence[str]) -> str:
    """Return the first items in quotation marks, shortened, and how many more there are."""
    quoted: list[str] = []
    for item in items[:MOST_LISTED]:
        short = item if len(item) <= LONGEST_LISTED else f"{item[: LONGEST_LISTED - 1]}…"
        quoted.append(f"“{short}”")
    listed = ", ".join(quoted)
    if len(items) > MOST_LISTED:
        listed += f" and {len(items) - MOST_LISTED} more"
    return listed


def agent_rules(agent: Agent) -> list[Callable[[str], bool]]:
    """Return the rules of an agent, from the functions that apps declare as `swarm_guards`."""
    rules: list[Callable[[str], bool]] = []
    for path in declared_list("swarm_guards"):
        rules_of = import_string(path)
        rules += rules_of(agent)
    return rules
