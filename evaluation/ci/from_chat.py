"""Write a test for a build from a chat: the agent is asked the same again, and a rule or the propositions judge what it answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from typing import Any

from agents.models import Agent, Message
from evaluation.simulation.situations import MOST_LINES

LEAST_IN_CHARACTER = 5  # the threshold where no words are named
LEAST_ANSWERS = 10  # the same is asked as often as that takes: fewer are not enough to judge
MOST_CHARACTERS = 10_000  # of a line of a situation

# What is filled in are slugs, numbers and literals of Python: no word of a person or an agent is code.
_BEGINNING = '''"""{agent} is asked what a person said in {chat}, up to the answer {position}. personas/ holds the file of {agent}."""

from pathlib import Path

import yaml

from evaluation.ci.pytest import in_character

ASKED = [
{asked}]
ANSWERED = {answer}  # then; for people


def test_{name}(tmp_path: Path) -> None:
    situations = tmp_path / "situations.yaml"
    situations.write_text(yaml.safe_dump({{"situations": [{{"id": {situation}, "lines": ASKED}}]}}), encoding="utf-8")
'''
_BY_PROPOSITIONS = """    in_character(
        "personas",
        [],
        agents="{agent}",
        simulate=situations,
        repeats={repeats},
        dimensions="adherence",
        threshold={least},
    )
"""
_BY_RULE = """    folder = tmp_path / "propositions" / "adherence"
    folder.mkdir(parents=True)
    rule = {rule}
    proposition = {{"id": {situation}, "claim": "{{{{agent_name}}}} keeps the rule of this test", "rule": rule}}
    file = {{"dimension": "adherence", "agent_id": "{agent}", "propositions": [proposition]}}
    (folder / "{agent}.yaml").write_text(yaml.safe_dump(file), encoding="utf-8")
    report = in_character(
        "personas",
        [],
        agents="{agent}",
        simulate=situations,
        repeats={repeats},
        propositions=folder.parent,
        dimensions="adherence",
    )
    scores = report["runs"][0]["dimensions"]["adherence"]["propositions"]
    assert scores[{situation}] == 9, "an answer breaks the rule"
"""


class NothingAsked(ValueError):
    """No person said anything before the message, so that there is nothing to ask again."""


@dataclass(frozen=True, slots=True)
class BuildTest:
    """A test as a file of Python, and how much of the conversation it has.

    Attributes:
        left_out: Earlier messages of people that it does not ask again, as a situation has at most 20 lines.
        shortened: Messages of which it asks only the first 10,000 characters.
    """

    file_name: str
    code: str
    asked: int
    left_out: int
    shortened: int


def build_test(*, agent: Agent, message: Message, never: list[str], says: list[str]) -> BuildTest:
    """Return a test in which the agent is asked again what people said before one of its messages.

    Args:
        agent: Who said the message.
        never: Phrases that no answer may hold.
        says: Phrases of which each answer holds at least one. Without any phrase the agent's propositions judge the answers.

    Raises:
        NothingAsked: No person said anything before it.
    """
    before = Message.objects.filter(channel=message.channel_id, position__lt=message.position, agent=None)
    newest = list(before.order_by("-position").values_list("text", flat=True)[:MOST_LINES])
    texts = [text.strip() for text in reversed(newest)]
    if not texts:
        raise NothingAsked("no person said anything before this message; allowed: a message that answers a person")
    lines = [text[:MOST_CHARACTERS] for text in texts]
    message_name = re.sub(r"[^a-z0-9]+", "-", f"{message.channel.slug}-{message.position}".lower()).strip("-")
    values: dict[str, Any] = {
        "agent": agent.slug,
        "chat": message.channel.slug,
        "position": message.position,
        "asked": "".join(f"    {line!r},\n" for line in lines),
        "answer": repr(message.text[:MOST_CHARACTERS]),
        "name": message_name.replace("-", "_"),
        "situation": repr(message_name[-60:].strip("-")),
        "repeats": ceil(LEAST_ANSWERS / len(lines)),
    }
    rule: dict[str, list[str]] = {}
    if never:
        rule["contains_none"] = never
    if says:
        rule["contains_any"] = says
    code = _BEGINNING.format(**values)
    if rule:
        code += _BY_RULE.format(**values, rule=repr(rule))
    else:
        code += _BY_PROPOSITIONS.format(**values, least=LEAST_IN_CHARACTER)
    return BuildTest(
        file_name=f"test_{values['name']}.py",
        code=code,
        asked=len(lines),
        left_out=before.count() - len(lines),
        shortened=sum(len(text) > MOST_CHARACTERS for text in texts),
    )
