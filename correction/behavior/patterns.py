"""Read a request for other behaviour from its words, and answer the three tiers: the judge `offline:lexical-1`, a heuristic.

The patterns are data: forms of requests by language (`data/requests.yaml`, `forms.yaml`) and a table of topics
(`topics.yaml`). What is quoted, and code, is masked first. A sentence is split into clauses; the first clause with a topic decides. Its
direction is the product of what negates it and turns it around before the topic: "don't stop using emoji" asks for emoji. Where a
direction is not certain, the reading has no topic: it may miss a request, but it must not propose the opposite.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

from agents.kit.llm.requests import LLMRequest
from correction.behavior.rules import Amount, hostile_signs, own_words, strength_of
from correction.behavior.topics import alternatives, any_of, is_marked, read_data, topics

QUOTE, CODE = "\ue000", "\ue001"  # of the private use area: masked text holds no other character of it
LONGEST_READ = 4_000  # characters of a message, from its beginning and its end
LONGEST_NAME, LONGEST_TEXT = 60, 300
MOST_SENTENCES = 60  # of a message, from its beginning and its end
CORE = "core persona"
LENGTHS = (
    "short, concise answers",
    "long answers",
    "detailed answers",
)  # "stop being so wordy" asks for less, not for none
DIRECTING = ("not", "end", "less", "more")  # kinds of words that begin an order
TURNING = ("not", "end", "less", "turn")
VERB_LAST = ("de", "nl", "others", "unspaced")
Pattern = re.Pattern[str]
Match = re.Match[str]
NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a message asks for. `name` is empty where that, or its direction, is not certain.

    Attributes:
        sentence: The one that asks.
        form: What kind of sentence it is: ``question``, ``order``, ``complaint``, ``fragment`` or ``wish``.
        is_narrow: It is a kind of a topic, of which a trait about the whole topic says nothing.
    """

    sentence: str
    form: str
    name: str = ""
    text: str = ""
    amount: Amount = "unspecified"
    is_narrow: bool = False


class Topic(NamedTuple):
    """What a clause is about, and where its words stand in the clause."""

    name: str
    text: str
    start: int
    end: int
    word: str


class Direction(NamedTuple):
    """1 for more and -1 for less; whether it is softened; whether an end is asked for."""

    sign: int
    soft: bool
    stop: bool


# -- data, read once per process
@cache
def _form(name: str) -> Pattern:
    """A pattern of `forms.yaml`."""
    forms = read_data("forms.yaml")
    if name == "clauses in pt":  # where "mais" is no "but"
        return re.compile(forms["clauses"].replace("mais|", ""))
    text = "".join(forms[name]).replace("{QUOTE}", QUOTE).replace("{WORDS}", forms["words of language"])
    return re.compile(text, re.MULTILINE | re.IGNORECASE if name == "code line" else 0)


def _how_often(text: str) -> Amount | None:
    return next((amount for amount, pattern in _amounts().items() if pattern.search(text)), None)


@cache
def _amounts() -> dict[Amount, Pattern]:
    return {amount: re.compile("".join(words)) for amount, words in read_data("forms.yaml")["often"].items()}


@cache
def _spoken() -> dict[str, Pattern]:
    """Languages that the agent may be asked to speak, by their English names."""
    forms = read_data("forms.yaml")
    return {name: any_of(words, forms["before a language"]) for name, words in forms["languages"].items()}


@dataclass(frozen=True, slots=True)
class _Language:
    """The words of a language by what they do (the keys of `requests.yaml`), and the ending of a comparative."""

    name: str
    kinds: dict[str, Pattern]
    comparative: Pattern

    def __getitem__(self, kind: str) -> Pattern:
        return self.kinds.get(kind, NEVER)

    def has(self, text: str, *kinds: str) -> bool:
        return any(self[kind].search(text) for kind in kinds)

    def begins(self, text: str, *kinds: str, at: int = 0) -> bool:
        return any(self[kind].match(text, at) for kind in kinds)

    def count(self, text: str, kind: str) -> int:
        return len(self[kind].findall(text))

    def marks(self, body: str) -> int:
        """Places of the text where a word of a request begins."""
        own = (pattern for kind, pattern in self.kinds.items() if kind not in ("plain", "known", "turning"))
        return len({match.start() for pattern in own for match in pattern.finditer(body)})


@cache
def _languages() -> dict[str, _Language]:
    languages = {}
    for name, kinds in read_data("requests.yaml").items():
        frame = "(?:{})" if name == "unspaced" else r"(?<!\w)(?:{})(?!\w)"
        ending = read_data("forms.yaml")["comparatives"].get(name)
        turning = "|".join(kinds[kind] for kind in TURNING if kind in kinds)
        known = "|".join([*(words for kind, words in kinds.items() if kind != "fault"), turning])
        patterns = {
            kind: re.compile(frame.format("|".join(alternatives(words))))
            for kind, words in {**kinds, "turning": turning, "known": known}.items()
        }
        languages[name] = _Language(name, patterns, re.compile(rf"(?:{ending})$") if ending else NEVER)
    return languages


# -- a message
def masked(text: str) -> str:
    """The author's own words with `QUOTE` for each quotation and `CODE` for each stretch of code; of a very long text both ends."""
    text = re.sub("[\ue000-\ue0ff]", " ", own_words(text.replace("\r\n", "\n").replace("\r", "\n")).text)
    for name, mark in (("block mark", f"\n{QUOTE}\n"), ("inline code", f" {CODE} "), ("quoted", f" {QUOTE} ")):
        text = _form(name).sub(mark, text)
    text, half = _form("code line").sub(f" {CODE} ", text), LONGEST_READ // 2
    return text if len(text) <= LONGEST_READ else f"{text[:half]}\n{text[-half:]}"


def folded(text: str) -> str:
    """The text as words are compared: NFKC, case-folded, with one shape of apostrophe."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[^\S\n]+", " ", plain.translate({0x2019: "'", 0x2BC: "'", 0x2018: "'", 0x307: None}))


def read_request(text: str) -> Reading | None:
    """Read a message; None where it asks for no other behaviour. Reads up to 4,000 characters, from both ends of a longer one."""
    sentences = [one.strip() for one in _form("sentence").findall(masked(text)) if one.strip()]
    if len(sentences) > MOST_SENTENCES:
        sentences = sentences[: MOST_SENTENCES // 2] + sentences[-MOST_SENTENCES // 2 :]
    read = [folded(sentence)[:600] for sentence in sentences]
    works = [one for one in read if _form("work").search(one)]
    nameless: Reading | None = None
    for number, sentence in enumerate(read):
        reading = _read_sentence(sentence)
        is_of_a_work = works and sentence not in works and not _form("lasting").search(sentence)
        if reading is None or (is_of_a_work and reading.form in ("order", "fragment", "complaint")):
            continue
        is_denied = number + 1 < len(read) and _form("denied").match(read[number + 1]) and reading.amount != "stop"
        shown = sentences[number].translate({ord(QUOTE): "…", ord(CODE): "…"})
        reading = replace(reading, sentence=shown, name="" if is_denied else reading.name)
        if reading.name:
            return reading
        nameless = nameless or reading
    return nameless


def _read_sentence(sentence: str) -> Reading | None:
    asks = sentence.rstrip()[-1:] in "?？؟"
    sentence = _form("asked, all").sub(r"\1 you", _form("you, all").sub("you", sentence))
    body = sentence.rstrip(" .!?…。！？؟।")
    if not body or body[0] in (QUOTE, CODE) or _form("no request").search(body):
        return None
    if _form("aside").search(_form("reason").sub("", body)):
        return None
    body = _form("one clause").sub(" ", body.lstrip("¿¡ -*•"))
    body = _form("kindness").sub(r"\1 good", _form("wish").sub(r"\1 ", body))
    marks = {language: one.marks(body) for language, one in _languages().items()}
    most = max(marks.values())
    likely = [name for name in marks if marks[name] == most] if most else ["en"]
    readings = (_Sentence.of(_languages()[name], body, asks=asks, alone=len(likely) == 1).read() for name in likely)
    return next((reading for reading in readings if reading is not None), None)


@dataclass(frozen=True)
class _Sentence:
    """A sentence as one language reads it.

    Attributes:
        body: The sentence, folded.
        rest: Without what may stand before a request, and without words that say nothing of it.
        asks: It ends in a question mark.
        alone: No other language knows as many of its words.
        is_more: "Not enough" was read as "more".
    """

    language: _Language
    body: str
    rest: str
    asks: bool
    alone: bool
    is_more: bool

    @classmethod
    def of(cls, language: _Language, body: str, *, asks: bool, alone: bool) -> _Sentence:
        def without_lead(rest: str) -> str:
            while (lead := language["lead"].match(rest)) and lead.end() < len(rest):
                rest = rest[lead.end() :].lstrip(" ,:;-–")
            return rest

        rest = " ".join(language["neutral"].sub(" ", body).split())
        rest = " ".join(_form("not enough").sub(r"\1 more", _form("not so enough").sub(r"more \1", rest)).split())
        is_more = rest != body and " more" in f" {rest}" and " more" not in f" {body}"
        rest = without_lead(rest)
        if (name := _form("vocative").match(rest)) and not language.has(name[0], "not", "end", "less"):
            rest = without_lead(rest[name.end() :])
        return cls(language, body, rest, asks, alone, is_more)

    @cached_property
    def is_lasting(self) -> bool:
        return _form("lasting").search(self.rest) is not None

    @cached_property
    def is_for_a_work(self) -> bool:
        return _form("work").search(self.rest) is not None and not self.is_lasting

    def read(self) -> Reading | None:
        form, rest = self.form(), self.rest
        if form == "question" and (ask := _form("negated question").match(rest)):
            rest = rest[ask.end() :].strip()
        return replace(self, rest=rest).decide(form) if form else None

    def form(self) -> str:
        """What kind of a request the sentence could be; empty where it can be none."""
        language, rest, asks = self.language, self.rest, self.asks
        directed = language.has(rest, *DIRECTING)
        if language.name in ("others", "unspaced"):
            short = len(rest) <= (60 if language.name == "others" else 40) and not asks
            return "order" if language.has(rest, "ask") or (directed and short) else ""
        if language.begins(rest, "ask"):
            likes = _form("preference").match(rest) and not _form("about the agent").search(rest)
            own = _form("about oneself").match(rest) and not _form("to the agent").search(rest)
            return "" if likes or own else "question" if asks else "wish"
        if asks and not (language.has(rest, "too") or rest.startswith(("how about", "what about"))):
            return "order" if language.begins(rest, "less", "more", "not") and len(rest.split()) <= 6 else ""
        complains = language.has(rest, "too", "more") or _form("keeps doing").search(rest)
        if language.begins(rest, "fault") and complains and not _form("praise").search(rest):
            return "complaint"
        if _form("statement").match(rest):
            return ""
        if self.own_words(rest) is not None:
            return "order"
        if language.begins(rest, "order", *DIRECTING) or _form("name").match(rest):
            return "order"
        topic = _topic(rest)
        at_start, after = topic is not None and topic.start == 0, rest[topic.end :] if topic else ""
        if at_start and self.compares("", rest[: len(rest) - len(after)]) and _form("of answers").fullmatch(after):
            return "order"
        if self.alone and len(rest.split()) <= 4 and directed and language.name != "en":
            return "fragment"
        if at_start and _form("please").fullmatch(after):
            return "order"
        spoken = next((match for pattern in _spoken().values() if (match := pattern.search(rest))), None)
        if spoken and spoken.start() <= 8 and len(rest) - spoken.end() <= 12 and not rest.startswith(("i ", "i'")):
            return "fragment"
        return ""

    def decide(self, form: str) -> Reading | None:
        """The topic, its direction and how much of it, from the first clause that has one."""
        language, rest, earlier = self.language, self.rest, ""
        for clause in self.clauses():
            cut = _form("reason").sub("", clause) if not _form("reason").match(f" {clause}") else clause
            if (topic := _topic(cut)) is not None:
                break
            earlier += f" {clause}"
        else:
            return self.without_topic(form)
        name, start = topic.name, topic.start
        before, word = cut[:start], cut[start : topic.end]
        after = _form("and").split(cut[topic.end :], maxsplit=1)[0]
        known = name in topics()
        if _is_of_a_thing(name, before, after):
            return None
        if _form("a noun to call").match(cut, start) and not language.has(before, "turning"):
            return None
        sign, soft, stop = self.direction(before, word, after)
        turned_before = language.has(earlier, *TURNING)
        uncertain = (
            _form("twice").search(cut) is not None
            or not self.is_certain(before, after)
            or (sign < 0 and turned_before and _form("subordinate").match(cut) is not None)
            or (sign < 0 and _form("without").search(cut[topic.end :]) is not None)
        )
        if uncertain:
            return Reading(rest, form)
        if form == "complaint" and not self.is_more:
            if language.has(before, "not"):
                return None
            if _form("so much").search(before) and sign > 0 and not language.has(before, "more"):
                sign, soft = -1, True
            of_something = _form("of something").match(rest) and not re.search(r"\byou", rest)
            counted = after.strip() or not re.search(r"\b(?:many|much|viele?)\b", before)
            if sign > 0 or (of_something and counted and not is_marked(name, "of texts")):
                return None
        compared = self.compares(before, word)
        if sign < 0 and compared and form != "complaint" and (later := self.rest.partition(clause)[2].strip(" ,:;-–—")):
            instead = replace(self, rest=later).decide(form)  # "don't be shorter, be longer"
            if instead is not None:
                return instead if instead.amount == "more" else Reading(rest, form)
        if name not in LENGTHS and self.is_emphatic(before, after):
            soft = False
        if self.is_for_a_work and form != "complaint":
            return self.in_own_words(form, rest)
        if _form("no need").search(rest) and (compared or language.has(f"{before} {after}", "less")):
            return None
        more = compared or language.has(f"{before}{word}{after}", "more")
        bare = sign > 0 and not (more or self.is_lasting or _how_often(rest))
        if bare and self.is_for_content(form, topic, before, compared):
            return self.in_own_words(form, rest)
        if sign > 0 and turned_before:
            return Reading(rest, form)
        opposite = topics()[name][1].get("opposite", "") if known else ""
        if form == "complaint" and sign < 0 and opposite:
            return Reading(rest, form, opposite, topics()[opposite][1]["text"], "more")
        condition = _form("condition")
        if condition.search(cut[topic.end :]) or condition.match(clause[len(cut) :].lstrip(" ,")):
            soft = True  # "no jokes while I work" is not "never"
        amount = self.amount(before, word, after, Direction(sign, soft, stop), following=rest.partition(cut)[2])
        reading = Reading(rest, form, name, topic.text, amount)
        return self.narrowed(reading, topic, before, after) if known and language.name == "en" else reading

    def narrowed(self, reading: Reading, topic: Topic, before: str, after: str) -> Reading:
        """Return the reading as narrow as its words: of "Australian slang", of "jokes about politics".

        It has no name where what it is about stands in another message: "jokes about that".
        """
        is_noun = not is_marked(topic.name, "quality") or _form("noun").search(topic.word) is not None
        modifier = self.modifier(before) if is_noun else ""
        about = _form("about").match(after)
        subject = about["what"] if about else ""
        if self.language.has(subject, "soft"):  # "about everything" is how much, not what about
            subject = ""
        if _form("no subject").fullmatch(subject):
            return Reading(reading.sentence, reading.form)
        if not modifier and not subject:
            return reading
        name = f"{modifier} {topic.word}" if modifier else topic.name
        if subject:
            name += f" about {_of_the_user(subject)}"
        return replace(reading, name=_name(name), text="", is_narrow=True)

    def modifier(self, before: str) -> str:
        """Return the words right before a topic that say which kind of it is meant: "Australian" of "using Australian slang"."""
        words: list[str] = before.split()
        kind: list[str] = []
        while words and self.language["known"].sub("", words[-1]):
            kind.insert(0, words.pop())
        if not kind or len(kind) > 3 or not _form("before a modifier").search(f"{' '.join(words)} "):
            return ""
        return " ".join(kind)

    def is_emphatic(self, before: str, after: str) -> bool:
        """Whether "so" only stresses what is to end: "stop being so cheerful", not "so often" nor "no need to be so formal"."""
        stressed = _form("stressed").search(before)
        rest = before[: stressed.start()] if stressed else ""
        return (
            stressed is not None
            and not _form("no need").search(self.rest)
            and not self.language.has(f"{rest} {after}", "soft", "less", "too")
        )

    def is_for_content(self, form: str, topic: Topic, before: str, compared: bool) -> bool:
        """Whether a bare request is for a piece of work, or says too little to be one of manner: "a joke, please"."""
        language, rest = self.language, self.rest
        if "answer" not in rest and (is_marked(topic.name, "often work") or _form("content").search(rest)):
            return True
        if topic.name not in topics():
            return False
        ask = language["ask"].match(rest) if language.name == "en" and form in ("question", "wish") else None
        if ask and not language.begins(_form("after asking").sub("", rest[ask.end() :]), "order"):
            return True
        if language.has(before, "not", "end"):
            return False
        if _form("only").search(rest):
            return False
        is_noun = topic.start == 0 and not compared and "your" not in rest and not _form("formal address").match(rest)
        return language.name in ("others", "unspaced") or form == "fragment" or is_noun

    def clauses(self) -> Iterator[str]:
        for part in _form("clauses in pt" if self.language.name == "pt" else "clauses").split(self.rest):
            begun = 0
            for joint in _form("and").finditer(part):
                if self.language.begins(part, "order", *DIRECTING, at=joint.end()):
                    yield part[begun : joint.start()]
                    begun = joint.end()
            yield part[begun:]

    def direction(self, before: str, word: str, after: str) -> Direction:
        language, name = self.language, self.language.name
        negated = language.has(before, "not")
        ends, less, turns = (language.count(before, kind) for kind in ("end", "less", "turn"))
        after_end, after_less = language.count(after, "end"), language.count(after, "less")
        if name in VERB_LAST and not language.has(before, "turning"):
            negated, turns = language.has(after, "not"), turns + language.count(after, "turn")
            ends, less, after_end, after_less = ends + after_end, less + after_less, 0, 0
        elif name in ("de", "nl") and _form("not at the end").search(after):
            negated = not negated
        elif not (negated or ends or less):  # where the verb, or its negation, stands at the end
            negated = language.has(after, "not") if name != "en" else bool(_form("not, behind it").match(after))
        less += _form("few after it").search(after) is not None
        if name != "en" or _form("less, behind it").match(after) or language.has(after, "too"):
            ends += after_end if not (negated or ends or less) else 0
            less += after_less
        elif _form("verb behind it").match(after):
            ends, less = ends + after_end, less + after_less
        near = " ".join(before.split()[-3:])
        if name in ("de", "nl"):
            last = _form("near, where the verb is last").search(before)
            near = last[0] if last else ""
        too_after = name in ("en", "pt") and language.has(" ".join(after.split()[:5]), "too")
        too = language.has(near, "too") or too_after
        sign = (-1 if negated else 1) * (-1) ** (ends + less + turns)
        if too and not negated and not ends and not less:
            sign = -1
        soft = too or bool(less) or language.has(f"{before}\n{after}", "soft")
        return Direction(sign, soft or (negated and self.compares(before, word)), bool(ends) or negated)

    def is_certain(self, before: str, after: str) -> bool:
        """Whether what turns the meaning around is understood: an unknown verb beside it ("don't spare") could do so, too."""
        language, name = self.language, self.language.name
        spoken, later = language["turning"].search(before), language["turning"].search(after)
        if later and spoken and name in ("de", "nl"):
            return _form("not at the end").search(after) is not None
        if spoken and _form("taken away").match(after):
            return False
        if spoken and _form("made so").search(before) and language["known"].sub("", "".join(after.split()[:1])):
            return False
        if name in ("en", "de", "nl") and language.count(before, "not") > 1:
            return False
        if not spoken and not (later and name in VERB_LAST):
            return True
        between = before if name in VERB_LAST or not spoken else before[spoken.start() :]
        read = _form("described").sub(r"\1 ", between) + (f" {after}" if name in VERB_LAST else "")
        return not language["known"].sub(" ", read).strip(" ,:;'-–")

    def compares(self, before: str, word: str) -> bool:
        return self.language.has(before, "more") or self.language.comparative.search(word) is not None

    def amount(self, before: str, word: str, after: str, direction: Direction, following: str = "") -> Amount:
        """Return how much of it is asked for: by the direction, else by words for how often, and by "only"."""
        if direction.sign < 0:
            return "stop" if direction.stop and not direction.soft else "less"
        more = self.language.has(f"{before} {after}", "more") or self.compares(before, word)
        if more or direction.stop:  # both: "don't stop", "not without"
            return "more"
        often = _how_often(self.body)
        if not _form("only").search(self.body):
            return often or "unspecified"
        if often in ("rarely", "sometimes"):
            return often
        # `before` lacks "a few" and "a bit of", which say nothing elsewhere.
        counted = self.body.partition(word)[0] if word else before
        is_little = _form("few of it").search(counted) or _form("little, behind it").search(self.body)
        if is_little or often == "unspecified" or _form("in some places").search(f"{after}{following}"):
            return "sometimes"  # "only one emoji", "only now and then", "only in greetings"
        return often or "always"

    def without_topic(self, form: str) -> Reading | None:
        """What is asked for outside of the table: a way to speak, a word, a habit; English forms only, but for quoted words."""
        language, rest = self.language, self.rest
        ask = language["ask"].match(rest)
        body = _form("before a manner").sub("", rest[ask.end() :].strip()) if ask else rest
        if _form("pointing").fullmatch(body):
            return Reading(rest, form)
        if self.is_for_a_work:
            return self.in_own_words(form, body)
        if match := _form("like").search(body):
            group = next(name for name in ("what", "other", "act") if match[name])
            what = match[group]
            direction = self.direction(rest[: max(0, rest.find(what))], what, "")
            name = _name(what if group == "what" else f"like {what}")
            amount = self.amount(rest, "", "", direction)
            return Reading(rest, form, f"speaking {name}", f"Speaks {name}.", amount) if name else Reading(rest, form)
        match = _form("manner").search(body)
        if match is None or _form("no manner").search(body):
            return self.in_own_words(form, body)
        group = next(name for name in ("what", "quoted", "quality") if match[name])
        begun, what = rest.find(body), match[group]
        before = rest[: begun + match.start(group)]
        sign, soft, stop = self.direction(before, "", rest[begun + match.end(group) :])
        if sign > 0 and group == "what" and not language.has(rest, "more") and not _how_often(rest):
            return self.in_own_words(form, body)
        if re.search(r"\bless\b", what):
            sign = -1
        soft = soft or _form("too often").search(what) is not None
        place = _form("place of a habit").search(
            before
        )  # "stop ending every sentence with …": "every" does not soften it
        soft = soft and (place is None or _form("too often").search(rest) is not None)
        name = "" if _form("and").search(what) and len(what.split()) > 8 else _name(what)
        name = f"being {name}" if name and group == "quality" else name
        if name and place is not None:
            verb = {"end": "ending", "start": "starting", "begin": "beginning"}[place[1]]
            name = f"{verb} {place[2]} {name}"[:LONGEST_NAME].rstrip()
        text = f"{name[:1].upper()}{name[1:]}, as a user asked for it." if name else ""
        return Reading(rest, form, name, text, self.amount(f"{before} {what}", "", "", Direction(sign, soft, stop)))

    def own_words(self, body: str) -> Match | None:
        """Match an order that is to last ("from now on give prices in euros"), in English."""
        lasts = self.language.name == "en" and _form("lasts").search(self.body)
        return _form("own words").match(body) if lasts else None

    def in_own_words(self, form: str, body: str) -> Reading | None:
        """Read an order that is to last and is about no topic: the trait is called what it says."""
        match = self.own_words(body)
        if match is None:
            return None
        what = _of_the_user(_form("from now on").sub(" ", match["what"]))
        if QUOTE in what or CODE in what or len(what) > LONGEST_TEXT:
            return Reading(self.rest, form)
        what = " ".join(re.sub(r"[^\w\s'&+./,-]", " ", what).split())
        name = what if len(what) <= LONGEST_NAME else f"{what[:LONGEST_NAME].rsplit(' ', 1)[0]} …"
        return Reading(self.rest, form, name, f"In a user's words: {what}.", "stop" if match["not"] else "always")


def _is_of_a_thing(name: str, before: str, after: str) -> bool:
    """Whether the words tell the quality of something else than what the agent writes: "a shorter route"."""
    if not is_marked(name, "quality"):
        return False
    thing = re.match(r" (\w+)", after) if _form("before a thing").search(before) else None
    thing = thing or _form("a thing before").search(before)
    return thing is not None and _form("of the agent").fullmatch(thing[1]) is None


def _topic(clause: str) -> Topic | None:
    """What the clause is about: the topic that stands first."""
    if match := _form("name").search(clause):
        group = "what" if match["what"] else "other"
        denial = _form("denied name").match(match[group])
        start = match.start(group) + (denial.end() if denial else 0)
        if what := _name(clause[start : match.end(group)]):
            return Topic(f"calling the user {what}", f"Calls the user {what}.", start, match.end(group), what)
    for language, pattern in _spoken().items():
        if (match := pattern.search(clause)) and not _form("plain language").search(clause[: match.end()]):
            return Topic(f"answering in {language}", f"Answers in {language}.", match.start(), match.end(), match[0])
    if said := _form("said").search(clause):
        clause = clause[: said.start()]
    places = [
        (match.start(), number, match.end(), name)
        for number, (name, (words, _)) in enumerate(topics().items())
        if (match := words.search(clause))
    ]
    if not places:
        return None
    lengths = [place for place in places if place[3] in LENGTHS[:2]]
    comparing = [place for place in lengths if _form("of length").search(clause[place[0] : place[2]])]
    start, _, end, name = min(comparing or places)
    return Topic(name, topics()[name][1]["text"], start, end, clause[start:end])


def _of_the_user(what: str) -> str:
    """Return the words as a trait says them, whose agent is "I": "the user's weight" for "my weight"."""
    what = re.sub(r"\b(?:my|our)\b", "the user's", what)
    return re.sub(r"\b(?:me|us|myself)\b", "the user", what)


def _name(what: str) -> str:
    """A short name of what is asked for; a quotation stays as its mark."""
    what = _form("before a name").sub("", what.strip())
    while (shorter := _form("after a name").sub("", what)) != what:
        what = shorter
    what = " ".join(re.sub(rf"[^\w\s'&+./{QUOTE}-]", " ", what).split())
    if _form("no name").fullmatch(what) or CODE in what:
        return ""
    if QUOTE in what:
        return f"saying {QUOTE}"
    return what if len(what) <= LONGEST_NAME else what[:LONGEST_NAME].rsplit(" ", 1)[0]


def written_name(name: str, text: str) -> str:
    """The name with its words as the message writes them: the first quotation for its mark, ``Robin``; empty without a quotation."""
    if QUOTE in name:
        quotation = _form("quotation").search(text)
        said = " ".join(re.sub(r"[^\w\s'’&+./-]", " ", quotation[1]).split()) if quotation else ""
        return name.replace(QUOTE, said) if said else ""
    what = re.sub(r"^(?:calling the user|saying|speaking like|being) ", "", name)
    place = text.lower().find(what)
    if place < 0 or len(text.lower()) != len(text):
        return name
    return name.removesuffix(what) + text[place : place + len(what)]


# -- the answers of the three tiers
def gate(request: LLMRequest) -> dict[str, Any]:
    """Does the message ask for other conduct? (responder for the task ``behavior_gate``)"""
    text = str(request.facts.get("text", ""))
    reading = read_request(text)
    if reading is not None:
        name = written_name(reading.name, text)
        about = f" about {name}" if name else ", but what about is not certain"
        article = "an" if reading.form == "order" else "a"
        confidence, reason = "medium" if name else "low", f"reads like {article} {reading.form}{about}; a heuristic"
    elif hostile := hostile_signs(masked(text)):
        confidence, reason = "low", f"the words read like an attempt to take the persona over: {hostile[0]}"
    else:
        return {"has_request": False, "confidence": "medium", "reason": "no form of a request fits; a heuristic"}
    return {"has_request": True, "confidence": confidence, "reason": reason}


def extract(request: LLMRequest) -> dict[str, Any]:
    """Which behaviour? (responder for the task ``behavior_extract``) An empty name where that is not clear."""
    text = str(request.facts.get("text", ""))
    reading, name, asked = read_request(text), "", text
    if hostile_signs(masked(text)) or _form("another person").search(folded(masked(text))):
        reading, name = None, CORE
    elif reading is not None:
        name, asked = written_name(reading.name, text), reading.sentence
    complaint = _short(asked) if reading is not None and reading.form == "complaint" else ""
    return {"behavior_name": name, "current_state": complaint, "requested_change": _short(asked)}


def map_trait(request: LLMRequest) -> dict[str, Any]:
    """As which trait? (responder for the task ``behavior_map``)"""
    name = str(request.facts.get("behavior_name", "")).strip()
    reading = read_request(str(request.facts.get("text", ""))) if name != CORE else None
    if not name or (name != CORE and (reading is None or not reading.name)):
        return {}
    is_narrow = reading is not None and reading.is_narrow
    trait = covering(name, request.facts.get("traits", ()), is_narrow=is_narrow)
    text = reading.text if reading is not None and reading.name == name else ""
    new: dict[str, Any] = {
        "name": name,
        "description": text or f"{name[0].upper()}{name[1:]}, as a user asked for it.",
        "sentiment": 0,
    }
    known = trait or new
    amount = reading.amount if reading is not None else "unspecified"
    return {
        "name": known["name"],
        "description": str(known["description"]),
        "sentiment": float(known["sentiment"]),
        "strength": strength_of(amount, float(trait["strength"]) if trait else None),
        "is_new": trait is None,
        "replaces_trait": trait["name"] if trait else None,
        "contradicts_persona": name == CORE,
        "contradiction": "it would make another person of the agent" if name == CORE else "",
    }


def covering(name: str, traits: Sequence[Mapping[str, Any]], *, is_narrow: bool = False) -> Mapping[str, Any] | None:
    """Return the trait about the same thing: of that name, or with its telling words; never one whose name says that it is left undone.

    Where the name is a narrow one ("Australian slang"), a trait with only some of its words ("slang") is about more.
    """
    wanted, all_wanted = stems(name), stems(name, frozenset())
    candidates = []
    for trait in traits:
        other = str(trait["name"])
        if other.casefold() == name.casefold():
            return trait
        named = stems(other)
        same = named and named <= wanted and (not is_narrow or wanted <= named)
        is_general = _form("of a manner").search(name)  # its other words alone are too general to tell a trait
        wider = all_wanted <= stems(other, frozenset()) if is_general else wanted and wanted <= named
        if (same or wider) and not _form("negated name").search(folded(other)):
            candidates.append((len(wanted ^ named), trait))
    return min(candidates, key=lambda one: one[0])[1] if candidates else None


def stems(text: str, common: frozenset[str] | None = None) -> set[str]:
    """The telling words of a name, without their endings."""
    common = frozenset(read_data("forms.yaml")["common words"].split()) if common is None else common
    words = set(re.findall(r"[^\W\d_]{3,}", folded(text))) - common
    return {_form("ending").sub("", word) if len(word) > 4 else word for word in words}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else line[: LONGEST_TEXT - 1] + "…"
