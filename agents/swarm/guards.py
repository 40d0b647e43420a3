"""Whether a rewriting of a draft may replace it: it may not change numbers, names, dates, links, code, quotes, negations. It adds no
content word and drops no sentence with content.

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


def refusal(
    draft: str,
    polished: str,
    *,
    message: str = "",
    preferences: str = "",
    names: Collection[str] = (),
    rules: Sequence[Callable[[str], bool]] = (),
) -> str:
    """Say why a rewriting may not replace a draft; empty when it may.

    Args:
        message, preferences: What the draft answers, and what is known of the reader: their words are no new ones.
        names: Names that are names wherever they stand, as of the agents of the channel.
        rules: Of the agent, see `agent_rules`: true where a text keeps the rule. What the draft broke may stay broken.
    """
    if not polished.strip():
        return "The polish is empty."
    if polished == draft:
        return ""
    one = parse_text(draft, names=names, context=f"{message}\n{preferences}")
    other = parse_text(polished, names=names)
    for name, guard in GUARDS.items():
        difference = guard(one, other)
        for verb, items in (("adds", difference.added), ("loses", difference.lost)):
            if items:
                return f"The polish {verb} {_listed(items)} ({name})."
    if any(rule(draft) and not rule(polished) for rule in rules):
        return "The polish breaks a rule of the agent that the draft keeps (rules)."
    return ""


def _listed(items: Sequence[str]) -> str:
    shown = [item if len(item) <= 60 else f"{item[:59]}…" for item in items]
    return ", ".join(f"“{item}”" for item in shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def agent_rules(agent: Agent) -> list[Callable[[str], bool]]:
    """The rules of an agent, from the functions that apps declare as `swarm_guards`."""
    return [rule for path in declared_list("swarm_guards") for rule in import_string(path)(agent)]
