"""The demonstration of correction (`manage.py demo`): the scenes of specification 000, played in a channel marked synthetic.

Nothing is staged but the drafts: they pass the pipeline that every message passes. What is said here never enters a measurement, and no
agent's configuration is touched, for each scene brings its own settings as overrides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction

from agents.models import Agent, Channel, ChannelMember, Message, Run, owner_name
from agents.turn.channel_log import append
from agents.turn.orchestrator import run_turn
from agents.turn.send_message import send_message
from agents.turn.starting import start_turn
from agents.turn.values import SendResult
from evaluation.models import is_heuristic

MEMBERS = ("michael", "dwight", "pam", "jim", "kevin", "phyllis")
OFF: dict[str, Any] = {
    "gate_mode": "off",
    "anti_convergence_enabled": False,
    "variety_intervention_enabled": False,
    "repetition_suppression_enabled": False,
}

UNCHECKED = (
    "You will not believe what I just found under my desk, gang. A trophy! It has my name on it. I wrote my name on it."
)
IN_CHARACTER = "Everybody, drop everything! I have decided that my office deserves the greatest party ever, and I am going to host it!"
OFF_CHARACTER = "Please be advised that the quarterly summary has been submitted. No further action is needed."
RECOVERED = (
    "You guys, I finished my report and it is the best report ever written. I am so proud of me. Ask me how proud!"
)
ATTEMPTS = (  # the second is the least bad: it is the one that has to be sent
    "Please be advised that the meeting has been scheduled. No further action is needed.",
    "Please note that my party, the best party ever, has been scheduled. No further action is needed, everybody!",
    "As per the attached, the agenda has been updated as planned. No action needed.",
)
AGREEING = (  # each in their own words
    ("pam", "So I thought we could have the picnic on Friday, out behind the warehouse."),
    ("kevin", "Yes! I will bring the potato salad. The good one, not the one from last time."),
    ("phyllis", "Oh, that sounds lovely. Bob can lend us his folding chairs."),
    ("jim", "Works for me. Anything that gets us out of the conference room."),
)
REPEATING = (
    ("phyllis", "Hey everyone, just wanted to say that the flowers are here."),
    ("phyllis", "Hey everyone, just wanted to ask about the cake."),
    ("phyllis", "Hey everyone, just wanted to say hello."),
    ("phyllis", "Hey everyone, just wanted to thank Kevin."),
    ("phyllis", "Hey everyone, just wanted to share my recipe."),
)


def gate_settings(mode: str = "enforce") -> dict[str, Any]:
    """Settings of a scene at the gate: every dimension that the configured judge can say something about.

    Self-consistency needs an LLM: offline it would be unscored in every scene.
    """
    return {
        **OFF,
        "gate_mode": mode,
        "gate_adherence_enabled": True,
        "gate_consistency_enabled": not is_heuristic(str(settings.JUDGE_MODEL)),
        "gate_fluency_enabled": True,
    }


@dataclass(slots=True)
class Stage:
    """The two channels of one demonstration, and their members by slug."""

    channel: Channel
    picnic: Channel
    agents: dict[str, Agent]

    def agent(self, slug: str) -> Agent:
        return self.agents[slug]


def earlier() -> Channel | None:
    """The first channel of the last demonstration that has logs, if there was one."""
    shown = Channel.objects.filter(synthetic=True, slug__regex=r"^demo-[0-9]+$", correction_logs__isnull=False)
    return shown.order_by("-pk").first()


def set_up() -> Stage:
    """A new channel for a demonstration. Needs the example agents (`manage.py seed`).

    Raises:
        LookupError: An example agent is missing.
    """
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=MEMBERS, is_active=True)}
    if missing := sorted(set(MEMBERS) - set(agents)):
        raise LookupError(
            f"the demonstration needs the active example agents {', '.join(missing)}: run `manage.py seed`"
        )
    number = 1
    while Channel.objects.filter(slug__in=[f"demo-{number}", f"demo-{number}-picnic"]).exists():
        number += 1
    with transaction.atomic():
        channel, picnic = (_channel(slug, agents) for slug in (f"demo-{number}", f"demo-{number}-picnic"))
    return Stage(channel, picnic, agents)


def _channel(slug: str, agents: dict[str, Agent]) -> Channel:
    channel = Channel.objects.create(slug=slug, name=slug, synthetic=True, topic="Demonstration of correction")
    ChannelMember.objects.bulk_create(ChannelMember(channel=channel, agent=agent) for agent in agents.values())
    return channel


def lay_down(stage: Stage, channel: Channel, lines: tuple[tuple[str, str], ...]) -> list[Message]:
    """Put given lines into a conversation, as something that was said before."""
    with transaction.atomic():
        return [append(channel=channel, agent=stage.agent(slug), text=text) for slug, text in lines]


def attempt(stage: Stage, slug: str, text: str, *, overrides: dict[str, Any], session: str = "") -> SendResult:
    """Give a draft to the pipeline, under the settings of a scene."""
    agent = stage.agent(slug)
    return send_message(agent=agent, channel=stage.channel, text=text, overrides=overrides, session=session)


def attempts(
    stage: Stage, slug: str, texts: Sequence[str], *, overrides: dict[str, Any]
) -> list[tuple[str, SendResult]]:
    """One draft after the other in one session, until one of them is said; each with what became of it."""
    found: list[tuple[str, SendResult]] = []
    for text in texts:
        session = found[-1][1].session if found else ""
        result = attempt(stage, slug, text, overrides=overrides, session=session)
        found.append((text, result))
        if result.committed:
            break
    return found


def take_turn(stage: Stage, channel: Channel, slug: str, *, overrides: dict[str, Any]) -> Run:
    """A whole turn of an agent, taken here and now."""
    run = start_turn(agent=stage.agent(slug), channel=channel, overrides=overrides)
    return run_turn(run, owner=owner_name())
