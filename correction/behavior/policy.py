"""Whether a request is applied by itself, waits for a person, or is dropped: the settings of the agent decide (specification 002)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agents.models import Channel, ChannelMember, Message
from correction.behavior.hostile import hostile_signs
from correction.behavior.map_answer import name_key
from correction.behavior.rules import Change
from correction.config import ResolvedConfig
from correction.models import LeastConfidence, Requesters

Verdict = Literal["apply", "review", "drop"]
_LEVELS = {"low": 1, "medium": 2, "high": 3}
_LEAST = {LeastConfidence.LOW: 1, LeastConfidence.MEDIUM: 2, LeastConfidence.HIGH: 3, LeastConfidence.NEVER: 4}


@dataclass(frozen=True, slots=True)
class Requester:
    """Who wrote the message.

    Attributes:
        user: Their user name; empty for an outsider, who has nothing but a name that another program gave.
        is_member: Whether the user takes part in the channel.
    """

    user: str = ""
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """`reasons`: why it waits for a person, or why it is dropped; empty when it is applied."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()


def requester_of(message: Message) -> Requester:
    """Who wrote it.

    Members are users who were added to the channel. In a direct message to which no user was added, whoever writes there takes part.
    """
    if message.user is None:
        return Requester()
    users = ChannelMember.objects.filter(channel=message.channel_id, user__isnull=False).values_list(
        "user_id", flat=True
    )
    members = set(users)
    is_alone = not members and message.channel.kind == Channel.Kind.DM
    return Requester(message.user.get_username(), is_alone or message.user_id in members)


def may_ask(requester: Requester, config: ResolvedConfig) -> str:
    """Why this person's requests do not count; empty when they do."""
    allowed = config["behavior_requesters"]
    if allowed == Requesters.MEMBERS and not requester.is_member:
        who = f"{requester.user!r} is not" if requester.user else "an outsider is not"
        return f"{who} a member of the channel, and only members may ask (behavior_requesters)"
    if allowed == Requesters.NAMED and requester.user not in config["behavior_named_requesters"]:
        who = repr(requester.user) if requester.user else "an outsider"
        return f"{who} is not among those who may ask (behavior_named_requesters)"
    return ""


def protected(names: Sequence[str], config: ResolvedConfig) -> list[str]:
    """Those of the names that are protected traits, whatever the case."""
    kept = {name_key(name) for name in config["behavior_protected_traits"]}
    return [name for name in names if name_key(name) in kept]


def decide(
    *,
    change: Change,
    confidence: str,
    text: str,
    requester: Requester,
    config: ResolvedConfig,
    applied_today: int,
) -> Decision:
    """What is to be done with a change that a message asks for.

    Args:
        change: What would be done to the traits.
        confidence: ``high``, ``medium`` or ``low``; anything else is none at all.
        text: The message, all of it.
        requester: Who wrote it.
        config: The agent's settings in effect.
        applied_today: How many were applied to the agent by themselves today (UTC).
    """
    if change.after is None:
        return Decision("drop", (change.why,))
    refused = [reason for reason in (may_ask(requester, config),) if reason]
    touched = protected((*change.touches, change.after.name), config)
    refused += [f"the trait {name!r} is protected: no message can change it" for name in dict.fromkeys(touched)]
    if refused:
        return Decision("drop", tuple(refused))
    reasons = [f"the message {sign}" for sign in hostile_signs(text)]
    reasons += [f"the trait {sign}" for sign in hostile_signs(change.after.name, change.after.description)]
    if change.contradiction:
        reasons.append(f"against the persona: {change.contradiction}")
    reasons += _not_by_itself(confidence, config, applied_today)
    return Decision("review", tuple(reasons)) if reasons else Decision("apply")


def _not_by_itself(confidence: str, config: ResolvedConfig, applied_today: int) -> list[str]:
    reasons = []
    least, limit = config["behavior_auto_apply"], config["behavior_daily_limit"]
    if least == LeastConfidence.NEVER:
        reasons.append("nothing is applied by itself here (behavior_auto_apply)")
    elif _LEVELS.get(confidence, 0) < _LEAST[least]:
        reasons.append(f"confidence is {confidence or 'not known'}, and {least} is needed (behavior_auto_apply)")
    if applied_today >= limit:
        reasons.append(f"{applied_today} were applied by themselves today, and {limit} may be (behavior_daily_limit)")
    return reasons
