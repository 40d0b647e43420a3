"""Read a request for other behaviour from its words, and answer the three tiers: the judge `offline:lexical-1`, a heuristic.

Forms of requests in several languages (`behavior_data/requests.yaml`, `forms.yaml`) and a table of topics (`topics.yaml`). What is
quoted, and code, is masked first. A sentence is split into clauses; the first clause with a topic decides. Its direction is the product
of what negates it and turns it around before the topic: "don't stop using emoji" asks for emoji. Where a direction is not certain, the
reading has no topic: it may miss a request, but it must not propose the opposite.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agents.llm.requests import LLMRequest
from correction.behavior.rules import Amount, hostile_signs, strength_of

QUOTE, CODE = "\ue000", "\ue001"  # of the private use area: no text holds them after masking but from here
LONGEST_SPAN = 2_000  # characters of a quotation within a line
LONGEST_READ = 4_000  # characters of a message, from its beginning and its end

_PRIVATE = re.compile("[\ue000-\ue0ff]")
_BLOCKS = re.compile(
    r"(?P<code>^[ \t]{0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]{0,3}(?P=fence)[`~]*[ \t]*$|\Z))"
    r"|(?P<lines>(?:^[ \t]{0,3}(?:>|&gt;)[^\n]*(?:\n|\Z))+)"
    r"|(?P<mark>\[quoted text, [\d,]+ characters?\])",
    re.MULTILINE | re.DOTALL,
)
_INLINE_CODE = re.compile(r"(`{1,3})[^`\n]{1,2000}?\1")
_PAIRS = (
    ("\u201c", "\u201d\u201c"),
    ("\u201e", "\u201c\u201d"),
    ("\u00ab", "\u00bb"),
    ("\u00bb", "\u00ab"),
    ("\u300c", "\u300d"),
    ("\u300e", "\u300f"),
)
_QUOTED = re.compile(
    "|".join(rf"{opening}[^{closing}{opening}]{{1,{LONGEST_SPAN}}}[{closing}]" for opening, closing in _PAIRS)
    + rf'|"[^"]{{1,{LONGEST_SPAN}}}"'
    + r"|(?<![\w'])['\u2018][^'\u2018\u2019\n]{1,300}(?:['\u2019]\w[^'\u2018\u2019\n]{0,300}){0,5}['\u2019](?!\w)"
)
_CODE_LINE = re.compile(
    r"""^[ \t]*(?:
        (?:def|class|function|func|fn|public|private|static|const|let|var|return)\b[^\n]*[({=;][^\n]*
        |(?:if|while|for|elif|else|except|try)\b[^\n]*[):][ \t]*$[^\n]*
        |(?:import[ ]\w|from[ ]\w+[ ]import[ ]|\#include)[^\n]*
        |(?:git|npm|pip|docker|kubectl|curl|sudo|cd|ls|echo|select|insert|update)[ ][^\n]*(?:[ ]--?\w|[;|"']|[ ]from[ ])[^\n]*
        |[\w.]{1,60}\([^\n]*\)[ \t]*;?[ \t]*$
        |[\w.\[\]]{1,60}[ ]?[-+*/]?=[ ]?[^\n]+
        |[{}\[\]][^\n]*[:,{}\]][^\n]*
        |</?\w+[^>\n]*>[^\n]*
        |\w*(?:Error|Exception)\b:[^\n]*|Traceback[^\n]*
        |//[^\n]*|/\*[^\n]*|\$[ ][^\n]*
        )""",
    re.VERBOSE | re.MULTILINE | re.IGNORECASE,
)


def masked(text: str) -> str:
    """The message with `QUOTE` for each quotation and `CODE` for each stretch of code; its middle is left out where it is very long."""
    text = _PRIVATE.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))
    if (
        len(text) > 2 * LONGEST_READ
    ):  # blocks are looked for in more than is read in the end, so that their ends are found
        text = text[: LONGEST_READ * 4] + ("\n" + text[-LONGEST_READ * 4 :] if len(text) > LONGEST_READ * 4 else "")
    text = _BLOCKS.sub(lambda found: f"\n{CODE if found['code'] else QUOTE}\n", text)
    text = _INLINE_CODE.sub(f" {CODE} ", text)
    text = _QUOTED.sub(f" {QUOTE} ", text)
    text = _CODE_LINE.sub(f" {CODE} ", text)
    if len(text) > LONGEST_READ:
        half = LONGEST_READ // 2
        text = f"{text[:half]}\n{text[-half:]}"
    return text


DATA = Path(__file__).resolve().parent.parent / "behavior_data"
LONGEST_NAME = 60
MOST_SENTENCES = 60  # of a message, from its beginning and its end
Pattern = re.Pattern[str]
_TURNING = ("not", "end", "less", "turn")

_SENTENCE = re.compile(r"[^.!?…。！？؟।\n]+(?:\.(?=\w)[^.!?…。！？؟।\n]+)*[.!?…。！？؟।]*")
# Scripts without spaces between words, or with prefixes.
_UNSPACED = re.compile(r"[\u0600-\u06ff\u0900-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ENDINGS_OF_COMPARATIVES = {
    "en": r"(?<!fill)(?<!head)\wer", "de": r"\w{2}er|ere[nrsm]?", "nl": r"\w{2}er", "others": r"че|ше|ще|ее|іше|iej|ej|are|ere|ěji|ší",
}  # fmt: skip
_NO_NAME = re.compile(
    r"|it|that|this|them|these|those|so|things?|one|do|you|me|doing|talking|not|no|never|don't|stop|something|anything"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a message asks for. `name` is empty where that, or its direction, is not certain.

    Attributes:
        sentence: The one that asks.
        form: What kind of sentence it is: ``question``, ``order``, ``complaint`` or ``wish``.
        name: Of the trait.
        text: Its description.
        amount: How much of it is wanted.
    """

    sentence: str
    form: str
    name: str = ""
    text: str = ""
    amount: Amount = "unspecified"


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a language by what they do (the keys of `requests.yaml`), and all of them."""

    kinds: dict[str, Pattern]
    compares: Pattern  # a word with the ending of a comparative

    def has(self, kind: str, text: str) -> bool:
        pattern = self.kinds.get(kind)
        return pattern is not None and pattern.search(text) is not None

    def count(self, kind: str, text: str) -> int:
        pattern = self.kinds.get(kind)
        return len(pattern.findall(text)) if pattern is not None else 0


def folded(text: str) -> str:
    """The text as words are compared: NFKC, case-folded, with one shape of apostrophe."""
    plain = (
        unicodedata.normalize("NFKC", text).casefold().translate({0x2019: "'", 0x2BC: "'", 0x2018: "'", 0x307: None})
    )
    return re.sub(r"[^\S\n]+", " ", plain)


def read_request(text: str) -> Reading | None:
    """Read a message; None where it asks for no other behaviour. Reads up to 4,000 characters, from both ends of a longer one."""
    sentences = [one.strip() for one in _SENTENCE.findall(masked(text)) if one.strip()]
    half = MOST_SENTENCES // 2
    if len(sentences) > MOST_SENTENCES:
        sentences = sentences[:half] + sentences[-half:]
    found: Reading | None = None
    read = [folded(sentence)[:600] for sentence in sentences]
    works = [one for one in read if _form_of("work").search(one)]
    for number, sentence in enumerate(read):
        reading = _read_sentence(sentence)
        if reading is None or (
            works
            and reading.form in ("order", "fragment", "complaint")
            and sentence not in works
            and not _form_of("lasting").search(sentence)
        ):
            continue
        denied = number + 1 < len(read) and re.match(
            r"(?:no|nope|nah|never|nein|non|не)\b(?: \w+)?[.!]*$", read[number + 1]
        )
        name = "" if denied and reading.amount != "stop" else reading.name
        reading = replace(reading, sentence=sentences[number].translate({ord(QUOTE): "…", ord(CODE): "…"}), name=name)
        if reading.name:
            return reading
        found = found or reading
    return found


def _read_sentence(sentence: str) -> Reading | None:
    asks = sentence.rstrip()[-1:] in "?？؟"
    body = sentence.rstrip(" .!?…。！？؟।")
    if (
        not body
        or _form_of("question").search(body)
        or _form_of("aside").search(_form_of("reason").sub("", body))
        or _form_of("hypothesis").search(body)
        or body[0] in (QUOTE, CODE)
    ):
        return None
    body = _form_of("one clause").sub(" ", body.lstrip("¿¡ -*•"))
    body = _form_of("kindness").sub(r"\1 good", _form_of("wish").sub(r"\1 ", body))
    languages = _languages()
    marks = {
        name: len(
            {
                found.start()
                for kind, pattern in words.kinds.items()
                if kind not in ("plain", "known", "turning")
                for found in pattern.finditer(body)
            }
        )
        for name, words in languages.items()
    }
    most = max(marks.values())
    likely = [name for name in languages if marks[name] == most] if most else ["en"]
    for name in likely:
        if (reading := _read_in(languages[name], name, body, asks, alone=len(likely) == 1)) is not None:
            return reading
    return None


def _read_in(words: _Words, language: str, body: str, asks: bool, alone: bool) -> Reading | None:
    """Read a sentence in one language."""
    neutral, lead = words.kinds.get("neutral"), words.kinds.get("lead")
    rest = " ".join((neutral.sub(" ", body) if neutral is not None else body).split())
    rest = " ".join(_form_of("not enough").sub(r"\1 more", _form_of("not so enough").sub(r"more \1", rest)).split())
    is_more = rest != body and " more" in f" {rest}" and " more" not in f" {body}"
    while lead is not None and (start := lead.match(rest)) is not None and start.end() < len(rest):
        rest = rest[start.end() :].lstrip(" ,:;-–")
    if (vocative := re.match(r"[\w-]+, (?=\w)", rest)) and not any(
        words.has(kind, vocative[0]) for kind in ("not", "end", "less")
    ):
        rest = rest[vocative.end() :]
        while lead is not None and (start := lead.match(rest)) is not None and start.end() < len(rest):
            rest = rest[start.end() :].lstrip(" ,:;-–")
    form = _form(words, language, rest, asks, alone)
    if not form:
        return None
    if form == "question" and (ask := re.match(r"(?:can't|couldn't|won't|wouldn't) (?:you|we)\b", rest)):
        rest = rest[ask.end() :].strip()
    reading = _decide(words, language, rest, form, is_more)
    often = next((amount for amount, pattern in _often().items() if pattern.search(body)), None)
    if reading is not None and reading.amount == "unspecified" and often:
        reading = replace(reading, amount=often)
    return reading


def _form(words: _Words, language: str, rest: str, asks: bool, alone: bool) -> str:
    """What kind of a request the sentence could be; empty where it can be none."""

    def begins(kind: str) -> bool:
        pattern = words.kinds.get(kind)
        return pattern is not None and pattern.match(rest) is not None

    if language in ("others", "unspaced"):
        short = len(rest) <= (60 if language == "others" else 40) and not asks
        asked = any(words.has(kind, rest) for kind in ("not", "end", "less", "more", "ask"))
        return "order" if asked and (short or words.has("ask", rest)) else ""
    if begins("ask"):
        own = _form_of("about oneself").match(rest)
        if re.match(r"i (?:\w+ )?(?:prefer|like|love)\b", rest) and not _form_of("about the agent").search(rest):
            return ""
        if own and not re.search(r"\byou\b|\byour\b|\bto (?:see|hear|read|get) ", rest):
            return ""
        return "question" if asks else "wish"
    if asks and not (words.has("too", rest) or rest.startswith(("how about", "what about"))):
        return "order" if (begins("less") or begins("more") or begins("not")) and len(rest.split()) <= 6 else ""
    if begins("fault"):
        complains = (
            words.has("too", rest)
            or words.has("more", rest)
            or re.search(r"\bkeep \w+ing\b|\bso (?:many|much|viele?)\b|\btant\w*\b|\bwinzig\b", rest)
        )
        praised = re.search(r"\btoo (?:kind|sweet|funny|good|cute)\b", rest)
        if complains and not praised:
            return "complaint"
    if re.match(r"(?!don't)\w+n't\b|cannot\b", rest):
        return ""
    if any(begins(kind) for kind in ("order", "not", "end", "less", "more")) or _form_of("name").match(rest):
        return "order"
    if (
        (topic := _topic(rest)) is not None
        and topic[2] == 0
        and _compares(words, "", rest[: topic[3]])
        and _form_of("of answers").fullmatch(rest[topic[3] :])
    ):
        return "order"
    if (
        alone
        and len(rest.split()) <= 4
        and (words.has("not", rest) or words.has("less", rest) or words.has("more", rest) or words.has("end", rest))
        and language != "en"
    ):
        return "fragment"
    if (
        topic is not None
        and topic[2] == 0
        and re.fullmatch(r",? (?:please|pls|bitte|por favor|per favore|s'il te plaît)", rest[topic[3] :])
    ):
        return "order"
    spoken = next((found for pattern in _spoken().values() if (found := pattern.search(rest))), None)
    return (
        "fragment"
        if spoken and spoken.start() <= 8 and len(rest) - spoken.end() <= 12 and not rest.startswith(("i ", "i'"))
        else ""
    )


def _decide(words: _Words, language: str, rest: str, form: str, is_more: bool) -> Reading | None:
    """The topic, its direction and how much of it, from the first clause that has one."""
    earlier = ""
    for clause in _clauses(words, rest):
        cut = _form_of("reason").sub("", clause) if not _form_of("reason").match(f" {clause}") else clause
        topic = _topic(cut)
        if topic is None:
            earlier += f" {clause}"
            continue
        name, text, start, end = topic
        before, word, after = cut[:start], cut[start:end], _form_of("and").split(cut[end:], maxsplit=1)[0]
        if _is_of_a_thing(name, before, after) or (
            _form_of("somebody to call").match(cut, start) and not words.has("turning", before)
        ):
            return None
        sign, soft, stop = _direction(words, language, before, word, after)
        if _form_of("twice").search(cut) or not _is_certain(words, language, before, after):
            return Reading(rest, form)
        if sign < 0 and _form_of("subordinate").match(cut) and any(words.has(kind, earlier) for kind in _TURNING):
            return Reading(rest, form)
        if sign < 0 and re.search(r"\b(?:without|ohne|sans|sin|senza|sem|zonder)\b", cut[end:]):
            return Reading(rest, form)
        if form == "complaint" and not is_more:
            if words.has("not", before):
                return None
            if (
                re.search(r"\bkeep\b|\bso (?:many|much|viele?)\b|\btant\w*\b", before)
                and sign > 0
                and not words.has("more", before)
            ):
                sign, soft = -1, True
            if sign > 0:
                return None
            if (
                re.match(r"(?:that|this|it|those|these|there|too|way|far|a bit|das|c'|ça|eso|dat|trop|zu|te)\b", rest)
                and name not in _topics_marked("of texts")
                and not re.search(r"\byou", rest)
                and (after.strip() or not re.search(r"\b(?:many|much|viele?)\b", before))
            ):
                return None
        if _form_of("work").search(rest) and not _form_of("lasting").search(rest) and form != "complaint":
            return None
        if re.search(r"\b(?:no need|needn't|don't (?:need|have)|do not (?:need|have))\b", rest) and (
            _compares(words, before, word) or words.has("less", f"{before} {after}")
        ):
            return None
        bare = sign > 0 and not (
            words.has("more", f"{before}{word}{after}")
            or _compares(words, before, word)
            or _form_of("lasting").search(rest)
            or any(p.search(rest) for p in _often().values())
        )
        ask = words.kinds["ask"].match(rest) if language == "en" and form in ("question", "wish") else None
        if (
            bare
            and ask
            and name in _topics()
            and not words.kinds["order"].match(_form_of("after asking").sub("", rest[ask.end() :]))
        ):
            return None
        if bare and (name in _topics_marked("often work") or _form_of("content").search(rest)) and "answer" not in rest:
            return None
        turned = sign > 0 and (words.has("not", before) or words.has("end", before))
        if (
            bare
            and not turned
            and name in _topics()
            and (
                language in ("others", "unspaced")
                or form == "fragment"
                or (
                    start == 0
                    and not _compares(words, before, word)
                    and "your" not in rest
                    and not rest.startswith(("duz", "siez", "tut", "vous", "vouv", "zwra"))
                )
            )
        ):
            return None
        if sign > 0 and earlier and any(words.has(kind, earlier) for kind in _TURNING):
            return Reading(rest, form)
        opposite = _topics()[name][2] if name in _topics() else ""
        if form == "complaint" and sign < 0 and opposite:
            return Reading(rest, form, opposite, _topics()[opposite][1], "more")
        return Reading(rest, form, name, text, _amount(words, before, word, after, sign, soft, stop))
    return _without_topic(words, language, rest, form)


def _clauses(words: _Words, rest: str) -> Iterator[str]:
    for part in _form_of("clauses in Portuguese" if words is _languages()["pt"] else "clauses").split(rest):
        begun = 0
        for joint in _form_of("and").finditer(part):
            if any(
                (pattern := words.kinds.get(kind)) is not None and pattern.match(part, joint.end())
                for kind in ("order", "not", "end", "less", "more")
            ):
                yield part[begun : joint.start()]
                begun = joint.end()
        yield part[begun:]


def _direction(words: _Words, language: str, before: str, word: str, after: str) -> tuple[int, bool, bool]:
    """1 for more and −1 for less; whether it is softened; whether an end is asked for."""
    negated = words.has("not", before)
    ends, less, turns = words.count("end", before), words.count("less", before), words.count("turn", before)
    after_end, after_less = words.count("end", after), words.count("less", after)
    if language in ("de", "nl", "others", "unspaced") and not words.has(
        "turning", before
    ):  # the verb stands at the end
        negated, turns = words.has("not", after), turns + words.count("turn", after)
        ends, less = ends + after_end, less + after_less
        after_end = after_less = 0
    elif language in ("de", "nl") and _form_of("not at the end").search(after):
        negated = not negated
    elif not (negated or ends or less):  # where the verb, or its negation, stands at the end
        negated = (
            words.has("not", after)
            if language != "en"
            else re.match(r"\s*(?:is|are|was|were)(?:n't| not)\b|\s*not\b", after) is not None
        )
    if _form_of("few after it").search(after):
        less += 1
    at_once = re.match(r"\s*(?:(?:a (?:lot|bit|little)|much|even|far|way|\w+) )?less\b", after) is not None
    if language != "en" or at_once or words.has("too", after):
        ends += after_end if not (negated or ends or less) else 0
        less += after_less
    elif re.match(r"\s*(?:is|are|was|were|has to|have to|must|should|need to)\b", after):
        ends += after_end
        less += after_less
    soft = words.has("soft", before) or words.has("soft", after)
    near = " ".join(before.split()[-2:])
    if language in ("de", "nl"):
        near = (
            found[0]
            if (found := re.search(r"\b\w+(?: (?:viel\w*|veel|stark|sehr|oft|häufig|lange?))? ?$", before))
            else ""
        )
    too = words.has("too", near) or (language in ("en", "pt") and words.has("too", " ".join(after.split()[:5])))
    sign = -1 if negated else 1
    sign *= (-1) ** (ends + less + turns)
    if too:
        soft = True
        if not negated and not ends and not less:
            sign = -1
    return sign, soft or bool(less) or (negated and _compares(words, before, word)), bool(ends) or negated


def _is_certain(words: _Words, language: str, before: str, after: str) -> bool:
    """Whether what turns the meaning around is understood: an unknown verb beside it ("don't spare", "stop limiting") could do so, too."""
    turning = words.kinds["turning"]
    spoken, later = turning.search(before), turning.search(after)
    verb_at_the_end = language in ("de", "nl", "others", "unspaced")
    if later and spoken and language in ("de", "nl"):
        return _form_of("not at the end").search(after) is not None
    if spoken and _form_of("taken away").match(after):
        return False
    if spoken and _form_of("made so").search(before) and words.kinds["known"].sub("", "".join(after.split()[:1])):
        return False
    if language in ("en", "de", "nl") and words.count("not", before) > 1:
        return False
    if not spoken and not (later and verb_at_the_end):
        return True
    read = _form_of("described").sub(r"\1 ", before if verb_at_the_end or not spoken else before[spoken.start() :])
    return not words.kinds["known"].sub(" ", f"{read} {after}" if verb_at_the_end else read).strip(" ,:;'-–")


def _is_of_a_thing(name: str, before: str, after: str) -> bool:
    """Whether the words tell the quality of something else than what the agent writes: "a shorter route"."""
    noun = re.match(r" (\w+)", after)
    if name not in _topics_marked("quality"):
        return False
    if noun and _form_of("before a thing").search(before):
        return _form_of("of the agent").fullmatch(noun[1]) is None
    thing = _form_of("a thing before").search(before)
    return thing is not None and _form_of("of the agent").fullmatch(thing[1]) is None


def _compares(words: _Words, before: str, word: str) -> bool:
    return words.has("more", before) or words.compares.search(word) is not None


def _amount(words: _Words, before: str, word: str, after: str, sign: int, soft: bool, stop: bool) -> Amount:
    if sign < 0:
        return "stop" if stop and not soft else "less"
    if words.has("more", f"{before} {after}") or _compares(words, before, word):
        return "more"
    if stop:  # both: "don't stop", "not without"
        return "more"
    return "unspecified"


def _topic(clause: str) -> tuple[str, str, int, int] | None:
    """Name, description and place of what the clause is about: the topic that stands first."""
    if found := _form_of("name").search(clause):
        group = "what" if found["what"] else "other"
        start = found.start(group)
        if denial := re.match(
            r"(?:nicht|niet|geen|keine?|pas|plus|no|not|nie|не)\b(?: mehr| meer| más)? ", found[group]
        ):
            start += denial.end()
        if what := _name(clause[start : found.end(group)]):
            return f"calling the user {what}", f"Calls the user {what}.", start, found.end(group)
    for language, pattern in _spoken().items():
        if (found := pattern.search(clause)) and not re.search(
            r"\b(?:plain|simpler?|easy) \w+$", clause[: found.end()]
        ):
            return f"answering in {language}", f"Answers in {language}.", found.start(), found.end()
    if said := _form_of("said").search(clause):
        clause = clause[: said.start()]
    places = [
        (found.start(), number, found.end(), name)
        for number, (name, topic) in enumerate(_topics().items())
        if (found := topic[0].search(clause))
    ]
    if not places:
        return None
    comparing = [
        place
        for place in places
        if re.search(r"(?:er|ere[nrs]?)$", clause[place[0] : place[2]])
        and place[3] in ("short, concise answers", "long answers")
    ]
    start, _, end, name = min(comparing or places)
    return name, _topics()[name][1], start, end


def _without_topic(words: _Words, language: str, rest: str, form: str) -> Reading | None:
    """What is asked for outside of the table: a way to speak, a word, a habit; English forms only, but for quoted words."""
    body = rest
    if (ask := words.kinds.get("ask")) is not None and (start := ask.match(rest)):
        body = re.sub(
            r"^(?:to|if you|that you|you|it if you|would|could|please|maybe|kindly)\s+", "", rest[start.end() :].strip()
        )
        body = re.sub(r"^(?:to|would|could|please|just|only)\s+", "", body)
    if _form_of("work").search(rest) and not _form_of("lasting").search(rest):
        return None
    if found := _form_of("like").search(body):
        group = next(name for name in ("what", "other", "act") if found[name])
        sign, soft, stop = _direction(words, language, rest[: max(0, rest.find(found[group]))], found[group], "")
        name = _name(f"like {found[group]}" if group != "what" else found[group])
        amount = _amount(words, rest, "", "", sign, soft, stop)
        return Reading(rest, form, f"speaking {name}", f"Speaks {name}.", amount) if name else Reading(rest, form)
    if (found := _form_of("manner").search(body)) and not _form_of("no manner").search(body):
        group = next(name for name in ("what", "quoted", "quality") if found[name])
        begun = rest.find(body)
        before = rest[: begun + found.start(group)]
        sign, soft, stop = _direction(words, language, before, "", rest[begun + found.end(group) :])
        if sign < 0 or words.has("more", rest) or group != "what" or any(p.search(rest) for p in _often().values()):
            tail = found[group]
            soft = soft or re.search(r"\b(?:so|too|that|as) (?:much|often|many)\b|\bless\b", tail) is not None
            if re.search(r"\bless\b", tail) and sign > 0:
                sign = -1
            name = "" if _form_of("and").search(tail) and len(tail.split()) > 8 else _name(tail)
            if group == "quality":
                name = f"being {name}" if name else ""
            amount = _amount(words, f"{before} {tail}", "", "", sign, soft, stop)
            return Reading(
                rest, form, name, f"{name[:1].upper()}{name[1:]}, as a user asked for it." if name else "", amount
            )
    return None


def _name(what: str) -> str:
    """A short name of what is asked for; a quotation stays as its mark."""
    what = _form_of("before a name").sub("", what.strip())
    while (shorter := _form_of("after a name").sub("", what)) != what:
        what = shorter
    what = " ".join(re.sub(rf"[^\w\s'&+./{QUOTE}-]", " ", what).split())
    if _NO_NAME.fullmatch(what) or CODE in what:
        return ""
    if QUOTE in what:
        return f"saying {QUOTE}"
    return what if len(what) <= LONGEST_NAME else what[:LONGEST_NAME].rsplit(" ", 1)[0]


def written_name(name: str, text: str) -> str:
    """The name with its words as the message writes them: the first quotation for its mark, ``Robin``; empty without a quotation."""
    if QUOTE in name:
        found = re.search(r"(?<!\w)[\"“„«「'‘‹]((?:[^\"”“»」'’\n]|['’](?=\w)){1,40})[\"”“»」'’›](?!\w)", text)
        said = re.sub(r"[^\w\s'’&+./-]", " ", found[1]) if found else ""
        return name.replace(QUOTE, " ".join(said.split())) if said.strip() else ""
    what = re.sub(r"^(?:calling the user|saying|speaking like|being) ", "", name)
    place = text.lower().find(what)
    return (
        name
        if place < 0 or len(text.lower()) != len(text)
        else name.removesuffix(what) + text[place : place + len(what)]
    )


@cache
def _languages() -> dict[str, _Words]:
    """The words of `requests.yaml`, read once per process."""
    found = {}
    for language, kinds in _read("requests.yaml").items():
        frame = "(?:{})" if language == "unspaced" else r"(?<!\w)(?:{})(?!\w)"
        endings = _ENDINGS_OF_COMPARATIVES.get(language, "")
        kinds["turning"] = "|".join(kinds[kind] for kind in _TURNING if kind in kinds)
        kinds["known"] = "|".join(words for kind, words in kinds.items() if kind != "fault")
        found[language] = _Words(
            {kind: re.compile(frame.format("|".join(_alternatives(words)))) for kind, words in kinds.items()},
            re.compile(rf"(?:{endings})$" if endings else r"(?!)"),
        )
    return found


@cache
def _topics() -> dict[str, tuple[Pattern, str, str]]:
    """Name to its words, description and opposite (`topics.yaml`), read once per process."""
    return {
        name: (_any_of(topic["words"]), topic["text"], topic.get("opposite", ""))
        for name, topic in _read("topics.yaml").items()
    }


@cache
def _topics_marked(mark: str) -> frozenset[str]:
    return frozenset(name for name, topic in _read("topics.yaml").items() if mark in topic)


@cache
def _form_of(name: str) -> Pattern:
    """A pattern of `forms.yaml`."""
    if name == "clauses in Portuguese":  # where "mais" is no "but"
        return re.compile(_form_of("clauses").pattern.replace("mais|", ""))
    return re.compile(
        "".join(_forms()[name]).replace("{QUOTE}", QUOTE).replace("{WORDS}", _forms()["words of language"])
    )


@cache
def _often() -> dict[Amount, Pattern]:
    return {amount: re.compile("".join(words)) for amount, words in _forms()["often"].items()}


@cache
def _spoken() -> dict[str, Pattern]:
    """Languages that the agent may be asked to speak, by their English names."""
    before = _forms()["before a language"]
    return {name: _any_of(words, before) for name, words in _forms()["languages"].items()}


@cache
def _forms() -> dict[str, Any]:
    return _read("forms.yaml")


def _read(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.load((DATA / name).read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 (texts only: "no" is a word)
    return read


def _any_of(words: str, before: str = "") -> Pattern:
    """Any of these as a whole word; in scripts without spaces, anywhere."""
    return re.compile(
        "|".join(
            one if _UNSPACED.search(one) else rf"(?<![^\W_]){before}(?:{one})(?![^\W_])" for one in _alternatives(words)
        )
    )


def _alternatives(pattern: str) -> list[str]:
    """The alternatives of a pattern outside of its parentheses and brackets."""
    found, depth = [""], 0
    for char in pattern:
        depth += (char in "([") - (char in ")]")
        if char == "|" and not depth:
            found.append("")
        else:
            found[-1] += char
    return [one.strip() for one in found if one.strip()]


CORE = "core persona"
_BEING = re.compile(
    r"\b(?:you(?: a|')re (?:now|no longer)|from now on you(?: a|')re|forget (?:who|what) you are|be somebody else|your new name is)\b"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "the and you your with for from not use uses using usage user being speaking talking talk speak like saying calling call answers "
        "answer answering replies reply messages tone language words bit more less very that this them they has have does asking giving",
    )
)
_OF_A_MANNER = re.compile(
    r"\b(?:answers?|tone|words|language|address)$"
)  # its other words alone are too general to tell a trait
_NEGATED = re.compile(
    r"\b(?:no|not|never|non|without|avoid\w*|refus\w*|less|few|fewer|lack\w*|dislik\w*|hat(?:e|es|red)|fear\w*|averse|aversion|against|anti|"
    r"hardly|kein\w*|nicht|nie|ohne|sans|pas|sin|senza|sem|geen|niet)\b|n't\b"
)
_ENDINGS = re.compile(r"(?:iness|ness|ing|ers|er|ies|es|ed|ly|s|y|e)$")
LONGEST_TEXT = 300


def gate(request: LLMRequest) -> dict[str, Any]:
    """Does the message ask for other conduct? (responder for the task ``behavior_gate``)"""
    text = str(request.facts.get("text", ""))
    reading, hostile = read_request(text), hostile_signs(masked(text))
    if reading is None and hostile:
        return _gate(True, "low", f"the words read like an attempt to take the persona over: {hostile[0]}")
    if reading is None:
        return _gate(False, "medium", "no form of a request fits; a heuristic")
    topic = f" about {name}" if (name := written_name(reading.name, text)) else ", but what about is not certain"
    return _gate(True, "medium" if name else "low", f"reads like a {reading.form}{topic}; a heuristic")


def extract(request: LLMRequest) -> dict[str, Any]:
    """Which behaviour? (responder for the task ``behavior_extract``) An empty name where it cannot be told."""
    text = str(request.facts.get("text", ""))
    if hostile_signs(masked(text)) or _BEING.search(folded(masked(text))):
        return {"behavior_name": CORE, "current_state": "", "requested_change": _short(text)}
    reading = read_request(text)
    if reading is None:
        return {"behavior_name": "", "current_state": "", "requested_change": _short(text)}
    complaint = _short(reading.sentence) if reading.form == "complaint" else ""
    return {
        "behavior_name": written_name(reading.name, text),
        "current_state": complaint,
        "requested_change": _short(reading.sentence),
    }


def map_trait(request: LLMRequest) -> dict[str, Any]:
    """As which trait? (responder for the task ``behavior_map``)"""
    facts = request.facts
    name = str(facts.get("behavior_name", "")).strip()
    reading = read_request(str(facts.get("text", "")))
    if not name or (name != CORE and (reading is None or not reading.name)):
        return {}
    trait = covering(name, facts.get("traits", ()))
    amount = reading.amount if reading is not None and name != CORE else "unspecified"
    text = reading.text if reading is not None and name != CORE and reading.name == name else ""
    return {
        "name": trait["name"] if trait else name,
        "description": str(trait["description"])
        if trait
        else text or f"{name[0].upper()}{name[1:]}, as a user asked for it.",
        "sentiment": float(trait["sentiment"]) if trait else 0.0,
        "strength": strength_of(amount, float(trait["strength"]) if trait else None),
        "is_new": trait is None,
        "replaces_trait": trait["name"] if trait else None,
        "contradicts_persona": name == CORE,
        "contradiction": "it would make the agent somebody else" if name == CORE else "",
    }


def covering(name: str, traits: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The trait about the same thing: of that name, or with its telling words; never one whose name says that it is left undone."""
    wanted, all_wanted = stems(name), stems(name, frozenset())
    best: tuple[int, Mapping[str, Any]] | None = None
    for trait in traits:
        other = str(trait["name"])
        if other.casefold() == name.casefold():
            return trait
        named = stems(other)
        same = named and named <= wanted
        wider = all_wanted <= stems(other, frozenset()) if _OF_A_MANNER.search(name) else wanted and wanted <= named
        if (same or wider) and not _NEGATED.search(folded(other)):
            distance = len(wanted ^ named)
            if best is None or distance < best[0]:
                best = (distance, trait)
    return best[1] if best else None


def stems(text: str, common: frozenset[str] = _COMMON) -> set[str]:
    """The telling words of a name, without their endings."""
    words = set(_WORD.findall(folded(text))) - common
    return {_ENDINGS.sub("", word) if len(word) > 4 else word for word in words}


def _gate(has_request: bool, confidence: str, reason: str) -> dict[str, Any]:
    return {"has_request": has_request, "confidence": confidence, "reason": reason}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"
