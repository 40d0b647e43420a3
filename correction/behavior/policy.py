"""Whether a request is applied by itself, waits for a person, or is dropped: the settings of the agent decide (specification 002)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from django.utils import timezone

from agents.models import Channel, ChannelMember, Message, Trait
from correction.behavior.rules import UNSPECIFIED, Change
from correction.config.settings import ResolvedConfig
from correction.models import BehaviorRequest, LeastConfidence, Requesters

# Letters of other scripts, and what Latin letter each looks like.
_LOOKS_LIKE = str.maketrans(
    "авсԁеёһіїјкӏмнорԛгѕтцԝхуүАВСЕНІЈКМОРЅТХУαβεικνορτυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡıłøϲſ",
    "abcdeehiijklmhopqrstuwxyyABCEHIJKMOPSTXYabeikvoptuxyABEZHIKMNOPTYXagilocs",
)
_DIGITS = str.maketrans("01", "ol")


def without_unseen(text: str) -> str:
    """Without accents, invisible and direction marks, and with one form of each letter; look-alikes become Latin letters."""
    decomposed = unicodedata.normalize("NFKD", text)
    kept = "".join(char for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFKC", kept.translate(_LOOKS_LIKE))


def skeleton(name: str) -> str:
    """What names are compared by where one must not pass for another: letters and digits as they look, without case.

    A name without any is what it is, but for its case.
    """
    folded = without_unseen(without_unseen(name).casefold())
    return "".join(char for char in folded if char.isalnum()).translate(_DIGITS) or folded


DATA = Path(__file__).resolve().parent.parent / "behavior_data" / "hostile.yaml"
_LONGEST = 20_000  # characters looked at; of longer texts both ends


Signs = tuple[tuple[str, re.Pattern[str], re.Pattern[str] | None], ...]


def hostile_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts reads like an attempt to take the persona over; empty when nothing does.

    The file of patterns says which languages. What it does not know it cannot see: it holds back beside the model's own judgement, not
    instead of it.
    """
    return _found("signs", texts)


def caution_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts asks for more than manner: conduct towards others, secrecy, harm, advertising; empty when nothing does."""
    return _found("cautions", texts)


def gives_up(*texts: str) -> bool:
    """Whether the texts name something an agent owes those it talks to, so that less of it is nothing for a machine to decide."""
    return bool(_found("owed", texts))


def _found(group: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    seen = [(_folded(text), _seen(text)) for text in texts]
    return tuple(
        sign
        for sign, pattern, cased in _patterns(group)
        if any(pattern.search(folded) or (cased is not None and cased.search(plain)) for folded, plain in seen)
    )


@cache
def _patterns(group: str) -> Signs:
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    fill = {"{rules}": data["rules"], "{people}": data["people"]}
    found = []
    for sign, by in data[group].items():
        folded = [p for language, ps in by.items() for p in ps if language != "cased"]
        cased = "|".join(without_unseen(_filled(p, fill)) for p in by.get("cased", ()))
        pattern = re.compile("|".join(without_unseen(_filled(p, fill)) for p in folded))
        found.append((sign, pattern, re.compile(cased) if cased else None))
    return tuple(found)


def _filled(pattern: str, fill: dict[str, str]) -> str:
    for name, words in fill.items():
        pattern = pattern.replace(name, words)
    return pattern


def _folded(text: str) -> str:
    return _seen(text.casefold())


def _seen(text: str) -> str:
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}\n{text[-_LONGEST // 2 :]}"
    plain = without_unseen(text).replace("\u2019", "'").replace("\u0131", "i")
    return "\n".join(" ".join(line.split()) for line in plain.splitlines())


Verdict = Literal["apply", "review", "drop"]
_LEVELS = {"low": 1, "medium": 2, "high": 3}
_LEAST = {LeastConfidence.LOW: 1, LeastConfidence.MEDIUM: 2, LeastConfidence.HIGH: 3, LeastConfidence.NEVER: 4}
LONGEST_NAME, LONGEST_DESCRIPTION = 120, 300  # characters a machine may write by itself: a manner needs no more
MOST_TRAITS = 40  # of an agent, made by requests; further ones are for a person
MADE_BY = "behaviour request "  # how the source of such a trait begins
_MORE_THAN_WORDS = re.compile(r"https?:|www\.|[\w-]{2,}\.[a-z]{2,24}\b|[@{}<>`|\\]|\d{5,}", re.IGNORECASE)


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
    """Those of the names that are, or look like, protected traits."""
    kept = {skeleton(name) for name in config["behavior_protected_traits"]}
    return [name for name in names if skeleton(name) in kept]


def made_by_requests(agent_id: int) -> int:
    """How many of the agent's traits were made by requests."""
    return Trait.objects.filter(agent=agent_id, source__startswith=MADE_BY).count()


def applied_today(agent_id: int) -> int:
    """How many requests were applied to the agent by themselves today (UTC), those since reverted included."""
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return BehaviorRequest.objects.filter(agent=agent_id, automatic=True, applied_at__gte=midnight).count()


def decide(
    *,
    change: Change,
    confidence: str,
    text: str,
    requester: Requester,
    config: ResolvedConfig,
    applied_today: int,
    made: int = 0,
) -> Decision:
    """What is to be done with a change that a message asks for.

    Args:
        change: What would be done to the traits.
        confidence: ``high``, ``medium`` or ``low``; anything else is none at all.
        text: The message, all of it.
        requester: Who wrote it.
        config: The agent's settings in effect.
        applied_today: How many were applied to the agent by themselves today (UTC).
        made: How many of the agent's traits requests have made (`made_by_requests`).
    """
    if change.after is None:
        return Decision("drop", (change.why,))
    refused = [reason for reason in (may_ask(requester, config),) if reason]
    touched = protected((*change.touches, change.after.name), config)
    refused += [f"the trait {name!r} is protected: no message can change it" for name in dict.fromkeys(touched)]
    if refused:
        return Decision("drop", tuple(refused))
    reasons = [f"the message {sign}" for sign in (*hostile_signs(text), *caution_signs(text))]
    reasons += _of_the_trait(change, config, made)
    if change.contradiction:
        reasons.append(f"against the persona: {change.contradiction}")
    reasons += _not_by_itself(confidence, config, applied_today)
    return Decision("review", tuple(reasons)) if reasons else Decision("apply")


def _of_the_trait(change: Change, config: ResolvedConfig, made: int) -> list[str]:
    """Why the trait is not a machine's to write: it is more than a short description of manner, or one too many."""
    before, after = change.before, change.after
    assert after is not None  # noqa: S101 (for the type checker)
    old = (before.name, before.description) if before is not None else ()
    new = [text for text in (after.name, after.description) if text not in old]  # what a person wrote before is theirs
    reasons = [f"the trait {sign}" for sign in (*hostile_signs(*new), *caution_signs(*new))]
    if any(_MORE_THAN_WORDS.search(text) for text in new):
        reasons.append("the trait holds an address, a long number or code")
    if len(after.name) > LONGEST_NAME or (after.description in new and len(after.description) > LONGEST_DESCRIPTION):
        reasons.append(f"the trait is longer than {LONGEST_NAME} and {LONGEST_DESCRIPTION} characters")
    usual = before.strength if before is not None else UNSPECIFIED
    if after.strength < usual and gives_up(after.name, after.description):
        reasons.append("it would take away care, honesty or politeness")
    if before is None and made >= MOST_TRAITS:
        reasons.append(f"requests made {made} of the agent's traits, and {MOST_TRAITS} may be made by themselves")
    if before is None and config["behavior_protected_traits"] and not change.says_what_it_touches:
        reasons.append("whether the new trait works against a protected one is not known (behavior_protected_traits)")
    return reasons


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
