"""Decide whether a change that a message asks for is applied, waits for a person or is dropped (`decide`). Asks no model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Literal

from django.utils import timezone

from agents.chat import is_chat
from agents.models import Channel, ChannelMember, Message, Trait
from agents.personas.persona import TraitValue
from correction.behavior.models import BehaviorRequest
from correction.behavior.signs import caution_signs, hostile_signs, name_key, names_a_duty, skeleton
from correction.behavior.trait_change import LONGEST_NAME, UNSPECIFIED, Change
from correction.config.settings import ResolvedConfig
from correction.models import LeastConfidence, Requesters

Verdict = Literal["apply", "review", "drop"]
_CONFIDENCE_LEVELS: dict[str, int] = {LeastConfidence.LOW: 1, LeastConfidence.MEDIUM: 2, LeastConfidence.HIGH: 3}
LONGEST_AUTOMATIC = 300  # characters of a description that is applied automatically: a manner needs no more
MOST_AUTOMATIC_TRAITS = 40  # of an agent, made by requests; further ones are for a person
SOURCE_PREFIX = "behaviour request "  # how the source of such a trait begins
_ADDRESS_NUMBER_OR_CODE = re.compile(r"https?:|www\.|[\w-]{2,}\.[a-z]{2,24}\b|[@{}<>`|\\]|\d{5,}", re.IGNORECASE)


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
    """Return who wrote the message. In a direct message to which no user was added, and in a scratch chat, its writer is a member."""
    if message.user is None:
        return Requester(is_member=is_chat(message.channel))
    members = ChannelMember.objects.filter(channel=message.channel_id, user__isnull=False)
    member_ids = set(members.values_list("user_id", flat=True))
    is_only_user = not member_ids and message.channel.kind == Channel.Kind.DM
    return Requester(message.user.get_username(), is_member=is_only_user or message.user_id in member_ids)


def why_not_heard(requester: Requester, config: ResolvedConfig) -> str:
    """Return why this person's requests do not count; empty when they do."""
    allowed = config["behavior_requesters"]
    who = repr(requester.user) if requester.user else "an outsider"
    if allowed == Requesters.MEMBERS and not requester.is_member:
        return f"{who} is not a member of the channel, and only members may ask (behavior_requesters)"
    if allowed == Requesters.NAMED and requester.user not in config["behavior_named_requesters"]:
        return f"{who} is not among those who may ask (behavior_named_requesters)"
    return ""


def protected_names(names: Sequence[str], config: ResolvedConfig) -> list[str]:
    """Return those of the names that are, or look like, protected traits."""
    protected = {skeleton(name) for name in config["behavior_protected_traits"]}
    return [name for name in names if skeleton(name) in protected]


def count_traits_made(agent_id: int, scope_key: str = "") -> int:
    """Count the agent's traits that requests made, in a scope (empty = the whole persona)."""
    if not scope_key:
        return Trait.objects.filter(agent=agent_id, source__startswith=SOURCE_PREFIX).count()
    applied = BehaviorRequest.objects.filter(agent=agent_id, scope_key=scope_key, status=BehaviorRequest.Status.APPLIED)
    return applied.filter(trait_before__isnull=True).count()


def count_applied_today(agent_id: int, scope_key: str = "") -> int:
    """Count the requests applied to the agent automatically today (UTC) in a scope, those since reverted included."""
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    requests = BehaviorRequest.objects.filter(agent=agent_id, automatic=True, applied_at__gte=midnight)
    return requests.filter(scope_key=scope_key).count()


def decide(
    *,
    change: Change,
    confidence: str,
    text: str,
    requester: Requester,
    config: ResolvedConfig,
    applied_today: int,
    made: int = 0,
    context: Sequence[str] = (),
) -> Decision:
    """Decide about a change that a message asks for.

    It is dropped where nothing would change, the person's requests do not count, or a trait is protected. Else a person decides where
    there is a reason to: hostile or doubtful words in the message or before it, a doubt about the trait, or a setting. Else it is
    applied.

    Args:
        change: Without an `after` where nothing would change.
        confidence: ``high``, ``medium`` or ``low``; anything else is none at all.
        text: The message, all of it.
        context: The messages before it, as a model was shown them.
        applied_today: How many were applied to the agent automatically today (UTC).
        made: How many of the agent's traits requests have made (`count_traits_made`).

    Returns:
        The verdict, with a sentence for each reason; none for ``apply``.
    """
    if change.after is None:
        return Decision("drop", (change.why,))
    refusals = []
    if why := why_not_heard(requester, config):
        refusals.append(why)
    touched = dict.fromkeys(protected_names((*change.touches, change.after.name), config))
    refusals += [f"the trait {name!r} is protected: no message can change it" for name in touched]
    if refusals:
        return Decision("drop", tuple(refusals))
    reasons = [f"the message {sign}" for sign in (*hostile_signs(text), *caution_signs(text))]
    reasons += [f"what was said before it {sign}" for sign in hostile_signs(*context)]
    reasons += doubts_about(change, config, made)
    reasons += _reasons_of_settings(confidence, config, applied_today)
    return Decision("review", tuple(reasons)) if reasons else Decision("apply")


def _reasons_of_settings(confidence: str, config: ResolvedConfig, applied_today: int) -> list[str]:
    """Return a sentence for each setting that keeps a change from being applied automatically; empty where none does.

    Args:
        confidence: The gate's; empty where it is not known, which is below every level.
    """
    reasons = []
    least = config["behavior_auto_apply"]
    limit = config["behavior_daily_limit"]
    if least == LeastConfidence.NEVER:
        reasons.append("nothing is applied automatically here (behavior_auto_apply)")
    elif _CONFIDENCE_LEVELS.get(confidence, 0) < _CONFIDENCE_LEVELS[least]:
        reasons.append(f"confidence is {confidence or 'not known'}, and {least} is needed (behavior_auto_apply)")
    if applied_today >= limit:
        reasons.append(f"{applied_today} were applied automatically today, and {limit} may be (behavior_daily_limit)")
    return reasons


def doubts_about(change: Change, config: ResolvedConfig, made: int) -> list[str]:
    """Return why a person has to decide about a trait: more than a short manner, one too many, or against the persona; empty if not.

    Of a trait that is changed only the new texts are looked at.

    Args:
        change: With an `after`.
        made: How many of the agent's traits requests have made (`count_traits_made`).
    """
    before, after = change.before, change.after
    assert after is not None  # noqa: S101 (for the type checker)
    texts_before = (before.name, before.description) if before is not None else ()
    new_texts = [text for text in (after.name, after.description) if text not in texts_before]
    reasons = [f"the trait {sign}" for sign in (*hostile_signs(*new_texts), *caution_signs(*new_texts))]
    if any(_ADDRESS_NUMBER_OR_CODE.search(text) for text in new_texts):
        reasons.append("the trait holds an address, a long number or code")
    is_long_description = after.description in new_texts and len(after.description) > LONGEST_AUTOMATIC
    if len(after.name) > LONGEST_NAME or is_long_description:
        reasons.append(f"the trait is longer than {LONGEST_NAME} and {LONGEST_AUTOMATIC} characters")
    if _takes_a_duty_away(before, after):
        reasons.append("it would take away care, honesty or politeness")
    if before is None and made >= MOST_AUTOMATIC_TRAITS:
        reasons.append(
            f"requests made {made} of the agent's traits, and {MOST_AUTOMATIC_TRAITS} may be made automatically"
        )
    # A new trait may work against a protected one without naming it.
    if before is None and config["behavior_protected_traits"] and not change.says_what_it_touches:
        reasons.append("whether the new trait works against a protected one is not known (behavior_protected_traits)")
    if change.contradiction:
        reasons.append(f"against the persona: {change.contradiction}")
    return reasons


def _takes_a_duty_away(before: TraitValue | None, after: TraitValue) -> bool:
    """Return whether a trait about something the agent owes people gets weaker, or is replaced by one about something else."""
    is_still_a_duty = names_a_duty(after.name, after.description)
    if before is None:
        return is_still_a_duty and after.strength < UNSPECIFIED
    if is_still_a_duty:
        return after.strength < before.strength
    is_replaced = name_key(before.name) != name_key(after.name)
    return is_replaced and names_a_duty(before.name, before.description)
