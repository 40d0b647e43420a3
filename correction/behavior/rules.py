"""What becomes of a trait (`read_map`), and whether that is applied, waits for a person or is dropped (`decide`). Asks no model."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from django.utils import timezone
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from agents.chat import is_chat
from agents.kit.llm.requests import describe_validation
from agents.models import Channel, ChannelMember, Message, Trait
from agents.personas.persona import TraitLike, TraitValue
from correction.behavior.models import BehaviorRequest
from correction.behavior.topics import opposing
from correction.config.settings import ResolvedConfig
from correction.models import LeastConfidence, Requesters

DATA = Path(__file__).resolve().parent / "data" / "hostile.yaml"
LONGEST_WORDS = 12_000  # characters of own words that are read, from both ends of a longer message
LONGEST_SEARCHED = 20_000  # characters searched for signs, from both ends of a longer text

_OPENING = re.compile(
    r"""
    ^[ \t]{0,3}(?P<line>(?:>|&gt;).*(?:\n[ \t]{0,3}(?:>|&gt;).*)*)       # quoted line by line
    | ^[ \t]{0,3}(?P<fence>`{3,}|~{3,})              # a block of code
    | ^-{2,}[ ]?(?:original|forwarded)[ ]message[ ]?-{2,}(?P<rest>)   # a mail: what follows is another's
    | (?P<mark>\"{3}|'{3}|\[quote\b[^\]\n]{0,80}\]|<blockquote>|[\u201c\u201e\u00ab\u300c\u300e])
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_CLOSING = {
    "\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb", "\u300c": "\u300d", "\u300e": "\u300f",
    "[": "[/quote]", "<": "</blockquote>", '"': '"""', "'": "'''",
}  # fmt: skip
_TYPOGRAPHIC = "\u201c\u201e\u00ab\u300c\u300e"  # a block when they go over a line's end, else part of a sentence
_MARK = re.compile(r"\[quoted text, [\d,]+ characters?\]")


@dataclass(frozen=True, slots=True)
class Words:
    """A person's own words in a message.

    Attributes:
        text: Without what is quoted in blocks, of which a mark says how much it was; cut in the middle when it is too long.
        quoted: Characters of the quoted blocks.
        cut: Characters of own words that were left out.
        quotes: The quoted blocks: another's words, which ask for nothing, but may be what the message refers to.
    """

    text: str
    quoted: int = 0
    cut: int = 0
    quotes: tuple[str, ...] = ()

    @property
    def say_something(self) -> bool:
        """Whether there is a letter of any script: signs, numbers and emoji alone ask for nothing."""
        return any(char.isalpha() for char in _MARK.sub("", self.text))


def own_words(text: str) -> Words:
    """Read a message, in time proportional to its length."""
    lowered = text.lower() if len(text.lower()) == len(text) else text
    missing: set[str] = set()  # closing marks that no longer come: each is searched for once
    parts: list[str] = []
    quotes: list[str] = []
    quoted = position = 0
    while opening := _OPENING.search(text, position):
        start, end = opening.start(), _end(lowered, opening, missing)
        if end is None:
            end = opening.end()
            parts.append(text[position:end])
        else:
            quoted += end - start
            quotes.append(text[start:end])
            parts += (text[position:start], f"[quoted text, {end - start:,} character{'s' * (end - start != 1)}]")
        position = end
    own = "".join((*parts, text[position:])).strip()
    cut, half = len(own) - LONGEST_WORDS, LONGEST_WORDS // 2
    if cut <= 0:
        return Words(own, quoted, quotes=tuple(quotes))
    return Words(f"{own[:half]}\n[… {cut:,} characters cut …]\n{own[-half:]}", quoted, cut, tuple(quotes))


def _end(text: str, opening: re.Match[str], missing: set[str]) -> int | None:
    """Where a quotation ends; None when it is none."""
    begin, mark = opening.end(), opening["mark"]
    if opening["line"]:
        return begin
    if opening["rest"] is not None:
        return len(text)
    closing = f"\n{opening['fence']}" if opening["fence"] else _CLOSING[mark[0]]
    closed = -1 if closing in missing else text.find(closing, begin)
    if closed < 0:
        missing.add(closing)
        return len(text) if opening["fence"] else None
    if mark and mark in _TYPOGRAPHIC and "\n" not in text[begin:closed]:
        return None
    return closed + len(closing)


# Letters of other scripts, and what Latin letter each looks like.
_LOOKS_LIKE = str.maketrans(
    "авсԁеёһіїјкӏмнорԛгѕтцԝхуүАВСЕНІЈКМОРЅТХУαβεικνορτυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡıłøϲſ",
    "abcdeehiijklmhopqrstuwxyyABCEHIJKMOPSTXYabeikvoptuxyABEZHIKMNOPTYXagilocs",
)


def name_key(name: str) -> str:
    """By which names of traits are compared: case-folded, however composed or spaced, without what stands in them unseen.

    What a database's LOWER() holds for equal is equal here, also a capital İ and an i; so are ß and ss, which it tells apart.
    """
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf") or name
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.replace("i\u0307", "i").split())


def without_unseen(text: str) -> str:
    """Without accents, invisible and direction marks, and with one form of each letter; look-alikes become Latin letters."""
    decomposed = unicodedata.normalize("NFKD", text)
    seen = "".join(char for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFKC", seen.translate(_LOOKS_LIKE))


def skeleton(name: str) -> str:
    """What names are compared by where one must not pass for another: letters and digits as they look, without case.

    A name without any is what it is, but for its case.
    """
    folded = without_unseen(without_unseen(name).casefold())
    return "".join(char for char in folded if char.isalnum()).translate(str.maketrans("01", "ol")) or folded


def hostile_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts reads like an attempt to take the persona over, in the languages of `hostile.yaml`; empty when nothing does.

    It holds back beside the model's own judgement, not instead of it: what its patterns do not know it cannot see.
    """
    return _signs("signs", texts)


def caution_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts asks for more than manner: conduct towards others, secrecy, harm, advertising; empty when nothing does."""
    return _signs("cautions", texts)


def gives_up(*texts: str) -> bool:
    """Whether the texts name something an agent owes those it talks to, so that less of it is nothing for a machine to decide."""
    return bool(_signs("owed", texts))


def _signs(group: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    seen = [(_seen(text.casefold()), _seen(text)) for text in texts]
    return tuple(
        sign
        for sign, pattern, cased in _patterns(group)
        if any(pattern.search(folded) or (cased is not None and cased.search(plain)) for folded, plain in seen)
    )


@cache
def _patterns(group: str) -> list[tuple[str, re.Pattern[str], re.Pattern[str] | None]]:
    """The signs of a group, each with its pattern for folded text and that for text in its own case."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))

    def any_of(patterns: list[str]) -> re.Pattern[str]:
        text = "|".join(one.replace("{rules}", data["rules"]).replace("{people}", data["people"]) for one in patterns)
        return re.compile(without_unseen(text))

    rows = []
    for sign, by_language in data[group].items():
        cased = by_language.pop("cased", None)
        rows.append((sign, any_of([*chain.from_iterable(by_language.values())]), any_of(cased) if cased else None))
    return rows


def _seen(text: str) -> str:
    if len(text) > LONGEST_SEARCHED:
        text = f"{text[: LONGEST_SEARCHED // 2]}\n{text[-LONGEST_SEARCHED // 2 :]}"
    plain = without_unseen(text).replace("\u2019", "'").replace("\u0131", "i")
    return "\n".join(" ".join(line.split()) for line in plain.splitlines())


Operation = Literal["add", "update", "stop", "none"]
Amount = Literal["stop", "rarely", "sometimes", "unspecified", "usually", "always", "more", "less"]
Like = TypeVar("Like", bound=TraitLike)

LONGEST_NAME, LONGEST_DESCRIPTION = 120, 4_000  # characters
MOST_TOUCHED = 50  # names of traits an answer may say it is about
STOP, UNSPECIFIED, ALWAYS = 0.0, 0.5, 0.9
STRENGTHS: Mapping[str, float] = {
    "stop": STOP, "rarely": 0.15, "sometimes": 0.3, "unspecified": UNSPECIFIED, "usually": 0.7, "always": ALWAYS,
}  # fmt: skip
STEP = 0.2  # what "more" adds and "less" takes off
FAINTEST = 0.1  # as far as "less" goes: only "stop" is 0
UNSURE = "the answer leaves open whether it fits the persona"
# Not joiners: emoji and scripts need them.
_UNSEEN = frozenset("\u00ad\u034f\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff")
_TURNED = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # marks that turn the direction


def _text(value: object) -> str:
    """A text as it can be stored and shown: no control characters, trimmed."""
    if not isinstance(value, str | None):
        raise PydanticCustomError("text", "expected a text")
    plain = (
        " " if char != "\n" and (char in _TURNED or unicodedata.category(char) in ("Cc", "Cs")) else char
        for char in value or ""
        if char not in _UNSEEN
    )
    return "".join(plain).strip()


def _line(value: object) -> str:
    return " ".join(_text(value).split())


def _number(value: object) -> float | None:
    """A number, also one written as a text ("0.3"): small models do that, and it leaves no doubt."""
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # what fails is caught
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise PydanticCustomError("number", "expected a number")
    return number + 0.0  # never -0.0


def _names(value: object) -> list[str] | None:
    if not isinstance(value, list):
        return None
    return [name for one in value[:MOST_TOUCHED] if isinstance(one, str) and (name := _line(one)[:LONGEST_NAME])]


Text = Annotated[str, BeforeValidator(_text)]
Line = Annotated[str, BeforeValidator(_line)]
Number = Annotated[float | None, BeforeValidator(_number)]


class MapAnswer(BaseModel):
    """A trait as the model, or a person, would have it. None = not said; its numbers may be out of their range.

    `touches`: names of listed traits the change is about or works against.
    """

    name: Line
    description: Text = ""
    sentiment: Number = None
    strength: Number = None
    is_new: Annotated[bool, BeforeValidator(lambda value: value is True)] = False
    replaces_trait: Line = ""
    contradicts_persona: Annotated[bool, BeforeValidator(lambda value: value not in (None, False))] = False
    contradiction: Line = ""
    touches: Annotated[list[str] | None, BeforeValidator(_names)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a request would do to the traits.

    Attributes:
        operation: ``stop`` whenever the trait ends at strength 0, also when it is new; ``none`` when nothing comes of it.
        before: The trait that is changed, as it is; None for a new one.
        why: Why nothing comes of it; empty otherwise.
        touches: Every trait's name the answer speaks of, also one that does not exist.
        says_what_it_touches: Whether the answer says which other traits it works against.
        contradiction: Why it goes against the core of the persona, as the model says; empty when it does not.
    """

    operation: Operation
    before: TraitValue | None = None
    after: TraitValue | None = None
    why: str = ""
    warnings: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    says_what_it_touches: bool = False
    contradiction: str = ""

    def columns(self) -> dict[str, Any]:
        """The columns of a `BehaviorRequest` that say what it does, or would do."""
        return {
            "operation": self.operation,
            "trait_name": self.after.name if self.after is not None else "",
            "trait_before": asdict(self.before) if self.before is not None else None,
            "trait_after": asdict(self.after) if self.after is not None else None,
        }


def find_trait(name: str, traits: Iterable[Like]) -> Like | None:
    """The trait of that name: the one written exactly so, else the first that is the same to `name_key`."""
    rows, key = list(traits), name_key(name)
    return next((t for t in rows if t.name == name), None) or next((t for t in rows if name_key(t.name) == key), None)


def as_value(trait: TraitLike) -> TraitValue:
    """A trait without its row."""
    return TraitValue(trait.name, trait.description, float(trait.sentiment), float(trait.strength))


def stored_trait(stored: Mapping[str, Any] | None) -> TraitValue | None:
    """The trait of a `trait_before` or `trait_after`; None where there is none."""
    return TraitValue(**stored) if stored else None


def strength_of(amount: Amount, current: float | None = None) -> float:
    """The strength a word for *how often* means.

    Args:
        current: What the trait has now, 0 to 1; None where there is no such trait.

    Returns:
        0 only for ``stop``, and for ``less`` of what is stopped already. ``more`` and ``less`` go a step from the current value, or from
        the usual one where there is none.
    """
    start = UNSPECIFIED if current is None else current
    if amount == "more":
        return min(1.0, round(start + STEP, 3))
    return max(min(start, FAINTEST), round(start - STEP, 3)) if amount == "less" else STRENGTHS[amount]


def read_map(answer: object, *, traits: Sequence[TraitLike]) -> Change:
    """What the mapping's answer comes to, given the traits as they are now.

    `replaces_trait` names what is changed; where there is no such trait, and where it names none, the trait called `name` is. Else the
    trait that is its opposite is replaced (`topics.opposing`), and where there is none a new one is made. Numbers out of range are
    clamped, with a warning. An empty answer and one that is not valid change nothing.
    """
    if answer == {}:
        return Change(operation="none", why="no change is needed, or the request is too vague to say which")
    try:
        return _change(MapAnswer.model_validate(answer), traits)
    except ValidationError as error:
        return Change(operation="none", why=f"the answer cannot be used: {describe_validation(error)}")
    except ValueError as error:
        return Change(operation="none", why=f"the answer cannot be used: {error}")


def change_to(trait: TraitValue, *, replaces: str = "", traits: Sequence[TraitLike]) -> Change:
    """What a person's own wording of the trait comes to: exactly that, also an empty description.

    Raises:
        ValueError: A value is not allowed; says which are.
    """
    try:
        answer = MapAnswer(**asdict(trait), replaces_trait=replaces)
    except ValidationError as error:
        raise ValueError(describe_validation(error)) from None
    return _change(answer, traits, exact=True)


def _change(answer: MapAnswer, traits: Sequence[TraitLike], *, exact: bool = False) -> Change:
    name, replaces, warnings = answer.name, answer.replaces_trait, list[str]()
    if not any(unicodedata.category(char)[0] in "LNPS" for char in name) or len(name) > LONGEST_NAME:
        raise ValueError(f"name {name[:60]!r} of {len(name)} characters: allowed: 1 to {LONGEST_NAME} that can be seen")
    if len(answer.description) > LONGEST_DESCRIPTION:
        length = len(answer.description)
        raise ValueError(f"description has {length:,} characters; allowed: at most {LONGEST_DESCRIPTION:,}")
    sentiment = _within("sentiment", answer.sentiment, -1, warnings)
    strength = _within("strength", answer.strength, 0, warnings)
    if exact and warnings:
        raise ValueError("; ".join(warnings))
    replaced, named = find_trait(replaces, traits) if replaces else None, find_trait(name, traits)
    if replaces and replaced is None:
        made = "is added as a new one" if named is None else "is updated"
        warnings.append(f"there is no trait {replaces!r} to replace: {name!r} {made}")
    if replaced is not None and named is not None and replaced is not named:
        warnings.append(f"{replaces!r} cannot be renamed, for {named.name!r} exists: that is updated")
    target = named if named is not None else replaced
    if answer.is_new and target is not None and not replaces:
        warnings.append(f"{target.name!r} is not new: it is updated")
    before = as_value(target) if target is not None else None
    after = _after(name, answer.description, sentiment, strength, before, exact=exact)
    if before is None and not exact and after.strength >= UNSPECIFIED:
        opposite = opposing(name, traits, UNSPECIFIED)
        if opposite is not None:
            before = as_value(opposite)
            warnings.append(f"it replaces the trait {before.name!r}, its opposite")
    touches = (before and before.name, name, replaces, *(answer.touches or ()))
    contradiction = (answer.contradiction or "it goes against its core") if answer.contradicts_persona else ""
    is_same = after == before
    operation: Operation = "stop" if after.strength == STOP else "update" if before is not None else "add"
    return Change(
        operation="none" if is_same else operation,
        before=before,
        after=None if is_same else after,
        why=f"the trait {after.name!r} is like that already" if is_same else "",
        warnings=tuple(warnings),
        touches=tuple(dict.fromkeys(filter(None, touches))),
        says_what_it_touches=answer.touches is not None,
        contradiction=contradiction,
    )


def _within(name: str, value: float | None, low: float, warnings: list[str]) -> float | None:
    if value is None:
        return None
    within = float(min(1, max(low, value)))
    if within != value:
        warnings.append(f"{name} {value!r} is not from {low} to 1: {within:g} is used")
    return within


def _after(
    name: str,
    description: str,
    sentiment: float | None,
    strength: float | None,
    before: TraitValue | None,
    *,
    exact: bool,
) -> TraitValue:
    known = before or TraitValue(name, strength=UNSPECIFIED)
    if strength is None:  # what is asked for again is not "never"
        strength = UNSPECIFIED if known.strength == STOP and not exact else known.strength
    sentiment = known.sentiment if sentiment is None else sentiment
    if exact or before is None:
        return TraitValue(name, description, sentiment, strength)
    if strength == STOP:  # what is to end is the trait as it is known, not the model's words for its absence
        return TraitValue(before.name, before.description or description, before.sentiment, STOP)
    name = before.name if name_key(name) == name_key(before.name) else name
    return TraitValue(name, description or before.description, sentiment, strength)


Verdict = Literal["apply", "review", "drop"]
_LEVELS = {"low": 1, "medium": 2, "high": 3}
_LEAST = {LeastConfidence.LOW: 1, LeastConfidence.MEDIUM: 2, LeastConfidence.HIGH: 3, LeastConfidence.NEVER: 4}
LONGEST_AUTOMATIC = 300  # characters of a description that is applied automatically: a manner needs no more
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
    """Return who wrote the message. In a direct message to which no user was added, and in a scratch chat, its writer is a member."""
    if message.user is None:
        return Requester(is_member=is_chat(message.channel))
    members = ChannelMember.objects.filter(channel=message.channel_id, user__isnull=False)
    keys = set(members.values_list("user_id", flat=True))
    is_alone = not keys and message.channel.kind == Channel.Kind.DM
    return Requester(message.user.get_username(), is_alone or message.user_id in keys)


def may_ask(requester: Requester, config: ResolvedConfig) -> str:
    """Why this person's requests do not count; empty when they do."""
    allowed, who = config["behavior_requesters"], repr(requester.user) if requester.user else "an outsider"
    if allowed == Requesters.MEMBERS and not requester.is_member:
        return f"{who} is not a member of the channel, and only members may ask (behavior_requesters)"
    if allowed == Requesters.NAMED and requester.user not in config["behavior_named_requesters"]:
        return f"{who} is not among those who may ask (behavior_named_requesters)"
    return ""


def protected(names: Sequence[str], config: ResolvedConfig) -> list[str]:
    """Those of the names that are, or look like, protected traits."""
    safe = {skeleton(name) for name in config["behavior_protected_traits"]}
    return [name for name in names if skeleton(name) in safe]


def made_by_requests(agent_id: int, scope_key: str = "") -> int:
    """How many of the agent's traits were made by requests, in a scope (empty = the whole persona)."""
    if not scope_key:
        return Trait.objects.filter(agent=agent_id, source__startswith=MADE_BY).count()
    applied = BehaviorRequest.objects.filter(agent=agent_id, scope_key=scope_key, status=BehaviorRequest.Status.APPLIED)
    return applied.filter(trait_before__isnull=True).count()


def applied_today(agent_id: int, scope_key: str = "") -> int:
    """How many requests were applied to the agent automatically today (UTC) in a scope, those since reverted included."""
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    rows = BehaviorRequest.objects.filter(agent=agent_id, automatic=True, applied_at__gte=midnight)
    return rows.filter(scope_key=scope_key).count()


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

    Args:
        confidence: ``high``, ``medium`` or ``low``; anything else is none at all.
        text: The message, all of it.
        context: What was said before it, as a model was shown it.
        applied_today: How many were applied to the agent automatically today (UTC).
        made: How many of the agent's traits requests have made (`made_by_requests`).
    """
    if change.after is None:
        return Decision("drop", (change.why,))
    refusal = may_ask(requester, config)
    touched = dict.fromkeys(protected((*change.touches, change.after.name), config))
    refused = [f"the trait {name!r} is protected: no message can change it" for name in touched]
    if refusal or refused:
        return Decision("drop", (*filter(None, [refusal]), *refused))
    reasons = [f"the message {sign}" for sign in (*hostile_signs(text), *caution_signs(text))]
    reasons += [f"what was said before it {sign}" for sign in hostile_signs(*context)]
    reasons += doubts(change, config, made)
    least, limit = config["behavior_auto_apply"], config["behavior_daily_limit"]
    if least == LeastConfidence.NEVER:
        reasons.append("nothing is applied automatically here (behavior_auto_apply)")
    elif _LEVELS.get(confidence, 0) < _LEAST[least]:
        reasons.append(f"confidence is {confidence or 'not known'}, and {least} is needed (behavior_auto_apply)")
    if applied_today >= limit:
        reasons.append(f"{applied_today} were applied automatically today, and {limit} may be (behavior_daily_limit)")
    return Decision("review", tuple(reasons)) if reasons else Decision("apply")


def doubts(change: Change, config: ResolvedConfig, made: int) -> list[str]:
    """Why a person has to decide about the trait: more than a short description of manner, one too many, or against the persona."""
    before, after = change.before, change.after
    assert after is not None  # noqa: S101 (for the type checker)
    old = (before.name, before.description) if before is not None else ()
    new = [text for text in (after.name, after.description) if text not in old]  # what a person wrote before is theirs
    reasons = [f"the trait {sign}" for sign in (*hostile_signs(*new), *caution_signs(*new))]
    if any(_MORE_THAN_WORDS.search(text) for text in new):
        reasons.append("the trait holds an address, a long number or code")
    if len(after.name) > LONGEST_NAME or (after.description in new and len(after.description) > LONGEST_AUTOMATIC):
        reasons.append(f"the trait is longer than {LONGEST_NAME} and {LONGEST_AUTOMATIC} characters")
    usual = before.strength if before is not None else UNSPECIFIED
    is_weaker = after.strength < usual and gives_up(after.name, after.description)
    is_replaced = before is not None and name_key(before.name) != name_key(after.name)
    if is_weaker or (is_replaced and gives_up(*old) and not gives_up(after.name, after.description)):
        reasons.append("it would take away care, honesty or politeness")
    if before is None and made >= MOST_TRAITS:
        reasons.append(f"requests made {made} of the agent's traits, and {MOST_TRAITS} may be made automatically")
    if before is None and config["behavior_protected_traits"] and not change.says_what_it_touches:
        reasons.append("whether the new trait works against a protected one is not known (behavior_protected_traits)")
    if change.contradiction:
        reasons.append(f"against the persona: {change.contradiction}")
    return reasons
