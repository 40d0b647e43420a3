"""What becomes of a trait (`read_map`), and whether that is applied, waits for a person or is dropped (`decide`). Asks no model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from django.utils import timezone

from agents.models import Channel, ChannelMember, Message, Trait
from agents.persona import TraitLike, TraitValue
from correction.config.settings import ResolvedConfig
from correction.models import BehaviorRequest, LeastConfidence, Requesters

LONGEST_NAME, LONGEST_DESCRIPTION = 120, 4_000  # characters
MOST_TOUCHED = 50  # names of traits an answer may say it is about
_UNSEEN = frozenset(
    "\u00ad\u034f\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff"
)  # not joiners: emoji and scripts need them
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def name_key(name: str) -> str:
    """By which names of traits are compared: case-folded, however composed or spaced, whatever stands in them unseen.

    What a database's LOWER() holds for equal is equal here, also a capital İ and an i; so are ß and ss, which it tells apart.
    """
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf") or name
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.replace("i\u0307", "i").split())


class Invalid(Exception):
    """Names the value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A trait as the model, or a person, would have it. None = not said.

    `touches`: names of listed traits the change is about or works against.
    """

    name: str
    description: str
    sentiment: float | None
    strength: float | None
    is_new: bool
    replaces: str
    contradiction: str
    warnings: tuple[str, ...]
    touches: tuple[str, ...] | None = None


def read_answer(answer: object) -> Answer:
    """Read it. Numbers out of range are clamped, with a warning; that an answer leaves open whether it contradicts counts as no.

    Raises:
        Invalid: A field is missing or not of its kind.
    """
    if not isinstance(answer, Mapping):
        raise Invalid(f"{_shown(answer)} is no object")
    warnings: list[str] = []
    name = _line("name", answer.get("name"))
    if not any(unicodedata.category(char)[0] in "LNPS" for char in name):
        raise Invalid(f"name {_shown(name)} shows nothing; allowed: 1 to {LONGEST_NAME} characters")
    if len(name) > LONGEST_NAME:
        raise Invalid(f"name has {len(name)} characters; allowed: 1 to {LONGEST_NAME}")
    description = _text("description", answer.get("description"))
    if len(description) > LONGEST_DESCRIPTION:
        raise Invalid(f"description has {len(description)} characters; allowed: at most {LONGEST_DESCRIPTION:,}")
    contradicts = answer.get("contradicts_persona")
    contradiction = _line("contradiction", answer.get("contradiction"))
    return Answer(
        name=name,
        description=description,
        sentiment=_number("sentiment", answer.get("sentiment"), -1.0, 1.0, warnings),
        strength=_number("strength", answer.get("strength"), 0.0, 1.0, warnings),
        is_new=answer.get("is_new") is True,
        replaces=_line("replaces_trait", answer.get("replaces_trait")),
        contradiction="" if contradicts in (None, False) else contradiction or "it goes against its core",
        warnings=tuple(warnings),
        touches=_names(answer.get("touches")),
    )


def _names(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(filter(None, (_line("touches", name) for name in value[:MOST_TOUCHED] if isinstance(name, str))))


def _number(name: str, value: object, low: float, high: float, warnings: list[str]) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Invalid(f"{name} {_shown(value)} is no number; allowed: {low:g} to {high:g}")
    within = float(min(high, max(low, value)))
    if within != value:
        warnings.append(f"{name} {_shown(value)} is not from {low:g} to {high:g}: {within:g} is taken")
    return within + 0.0  # never -0.0


def _text(name: str, value: object) -> str:
    """A text as it can be stored and shown: no control characters, trimmed."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Invalid(f"{name} {_shown(value)} is no text")
    seen = (char for char in value if char not in _UNSEEN)
    return "".join(char if char == "\n" or _is_plain(char) else " " for char in seen).strip()


def _line(name: str, value: object) -> str:
    return " ".join(_text(name, value).split())


def _is_plain(char: str) -> bool:
    """Not a control character, half a surrogate pair, or a mark that turns the direction of what follows."""
    return unicodedata.category(char) not in ("Cc", "Cs") and char not in _TURNING


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


Operation = Literal["add", "update", "stop", "none"]
Amount = Literal["stop", "rarely", "sometimes", "unspecified", "usually", "always", "more", "less"]

STOP, UNSPECIFIED, ALWAYS = 0.0, 0.5, 0.9
STRENGTHS: Mapping[str, float] = {
    "stop": STOP, "rarely": 0.15, "sometimes": 0.3, "unspecified": UNSPECIFIED, "usually": 0.7, "always": ALWAYS,
}  # fmt: skip
STEP = 0.2  # what "more" adds and "less" takes off
FAINTEST = 0.1  # as far as "less" goes: only "stop" is 0

Like = TypeVar("Like", bound=TraitLike)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a request would do to the traits.

    Attributes:
        operation: ``stop`` whenever the trait ends at strength 0, also when it is new; ``none`` when nothing comes of it.
        before: The trait that is changed, as it is; None for a new one.
        after: What it becomes; None with ``none``.
        why: Why nothing comes of it; empty otherwise.
        invalid: Nothing comes of it because the answer was none, not because nothing is to be done.
        warnings: What was odd about the answer.
        touches: Every trait's name the answer speaks of, also one that does not exist.
        says_what_it_touches: Whether the answer says which other traits it works against.
        contradiction: Why it goes against the core of the persona, as the model says; empty when it does not.
    """

    operation: Operation
    before: TraitValue | None = None
    after: TraitValue | None = None
    why: str = ""
    invalid: bool = False
    warnings: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    says_what_it_touches: bool = False
    contradiction: str = ""


def find_trait(name: str, traits: Iterable[Like]) -> Like | None:
    """The trait of that name: the one written exactly so, else the first that is the same to `name_key`."""
    rows, key = list(traits), name_key(name)
    return next((t for t in rows if t.name == name), None) or next((t for t in rows if name_key(t.name) == key), None)


def as_value(trait: TraitLike) -> TraitValue:
    """A trait without its row."""
    return TraitValue(trait.name, trait.description, float(trait.sentiment), float(trait.strength))


def trait_json(trait: TraitLike) -> dict[str, Any]:
    """What is stored of a trait before and after a change."""
    return {
        "name": trait.name,
        "description": trait.description,
        "sentiment": float(trait.sentiment),
        "strength": float(trait.strength),
    }


def trait_from_json(stored: Mapping[str, Any]) -> TraitValue:
    """The opposite of `trait_json`, exactly."""
    return TraitValue(
        str(stored["name"]), str(stored["description"]), float(stored["sentiment"]), float(stored["strength"])
    )


def strength_of(amount: Amount, current: float | None = None) -> float:
    """The strength a word for *how often* means.

    Args:
        amount: What was asked for.
        current: What the trait has now, 0 to 1; None where there is no such trait.

    Returns:
        0 only for ``stop``, and for ``less`` of what is stopped already. ``more`` and ``less`` go a step from the current value, or from
        the usual one where there is none.
    """
    if amount in ("more", "less"):
        start = UNSPECIFIED if current is None else current
        if amount == "more":
            return min(1.0, round(start + STEP, 3))
        return max(min(start, FAINTEST), round(start - STEP, 3))
    return STRENGTHS[amount]


def read_map(answer: object, *, traits: Sequence[TraitLike]) -> Change:
    """What the mapping's answer comes to, given the traits as they are now.

    `replaces_trait` names what is changed; where there is no such trait, and where it names none, the trait called `name` is, and a new
    one is made when there is none. An empty answer and one that is not valid change nothing.
    """
    if answer == {}:
        return Change(operation="none", why="no change is needed, or the request is too vague to say which")
    try:
        return _change(read_answer(answer), traits)
    except Invalid as error:
        return Change(operation="none", why=f"the answer cannot be used: {error}", invalid=True)


def change_to(trait: TraitValue, *, replaces: str = "", traits: Sequence[TraitLike]) -> Change:
    """What a person's own wording of the trait comes to. It is taken as it stands, also an empty description.

    Raises:
        ValueError: A value is not allowed; says which are.
    """
    answer = {**trait_json(trait), "replaces_trait": replaces or None}
    try:
        read = read_answer(answer)
    except Invalid as error:
        raise ValueError(str(error)) from None
    if read.warnings:
        raise ValueError("; ".join(read.warnings))
    return _change(read, traits, exact=True)


def _change(answer: Answer, traits: Sequence[TraitLike], *, exact: bool = False) -> Change:
    warnings = list(answer.warnings)
    replaced = find_trait(answer.replaces, traits) if answer.replaces else None
    named = find_trait(answer.name, traits)
    if answer.replaces and replaced is None:
        made = "is added as a new one" if named is None else "is updated"
        warnings.append(f"there is no trait {answer.replaces!r} to replace: {answer.name!r} {made}")
    if replaced is not None and named is not None and replaced is not named:
        warnings.append(f"{answer.replaces!r} cannot be renamed, for {named.name!r} exists: that is updated")
    target = named if named is not None else replaced
    if answer.is_new and target is not None and not answer.replaces:
        warnings.append(f"{target.name!r} is not new: it is updated")
    before = as_value(target) if target is not None else None
    after = _after(answer, before, exact=exact)
    others = answer.touches or ()
    touches = dict.fromkeys(filter(None, (before and before.name, answer.name, answer.replaces, *others)))
    common: dict[str, Any] = {
        "before": before,
        "warnings": tuple(warnings),
        "touches": tuple(touches),
        "says_what_it_touches": answer.touches is not None,
        "contradiction": answer.contradiction,
    }
    if after == before:
        return Change(operation="none", why=f"the trait {after.name!r} is like that already", **common)
    operation: Operation = "update" if before is not None else "add"
    return Change(operation="stop" if after.strength == STOP else operation, after=after, **common)


def _after(answer: Answer, before: TraitValue | None, *, exact: bool) -> TraitValue:
    known = before or TraitValue(answer.name, strength=UNSPECIFIED)
    unsaid = (
        UNSPECIFIED if known.strength == STOP and not exact else known.strength
    )  # what is asked for again is not "never"
    strength = unsaid if answer.strength is None else answer.strength
    sentiment = known.sentiment if answer.sentiment is None else answer.sentiment
    if exact or before is None:
        return TraitValue(answer.name, answer.description, sentiment, strength)
    description = answer.description or before.description
    if strength == STOP:  # what is to end is the trait as it is known, not the model's words for its absence
        return TraitValue(before.name, before.description or description, before.sentiment, STOP)
    name = before.name if name_key(answer.name) == name_key(before.name) else answer.name
    return TraitValue(name, description, sentiment, strength)


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
LONGEST_BY_ITSELF = 300  # characters of a description a machine may write by itself: a manner needs no more
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
    if len(after.name) > LONGEST_NAME or (after.description in new and len(after.description) > LONGEST_BY_ITSELF):
        reasons.append(f"the trait is longer than {LONGEST_NAME} and {LONGEST_BY_ITSELF} characters")
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
