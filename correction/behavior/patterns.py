"""Parse a request for other behaviour from the words of a message, without a model: a heuristic.

The patterns are data: what requests look like by language (`data/requests.yaml`, `patterns.yaml`) and a table of topics
(`topics.yaml`). What is quoted, and code, is masked first. A sentence is split into clauses; the first clause with a topic decides. Its
direction is the product of what negates it and turns it around before the topic: "don't stop using emoji" asks for emoji. Where a
direction is not certain, the request has no trait: a request may be missed, but the opposite must not be proposed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from correction.behavior.languages import (
    CODE,
    QUOTE,
    TURNING_KINDS,
    Language,
    Match,
    amount_by_frequency,
    folded,
    has_pattern,
    languages,
    pattern_named,
    spoken_languages,
)
from correction.behavior.naming import LENGTH_TOPICS, LONGEST_NAME, find_topic, from_the_agents_side, short_name
from correction.behavior.own_words import own_words
from correction.behavior.topics import Topic, topics
from correction.behavior.trait_change import Amount

LONGEST_READ = 4_000  # characters of a message, from its beginning and its end
LONGEST_SENTENCE = 600  # characters
LONGEST_WORDING = 300  # characters
MOST_SENTENCES = 60  # of a message, from its beginning and its end
ORDER_BEGINNINGS = ("not", "end", "less", "more")  # kinds of words that begin an order
VERB_LAST_LANGUAGES = ("de", "nl", "others", "unspaced")


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request that a message makes.

    Attributes:
        sentence: The sentence that makes it.
        form: The kind of sentence: ``question``, ``order``, ``complaint``, ``fragment`` or ``wish``.
        trait_name: Empty where the behaviour, or the direction of its change, is not certain.
        trait_description: Empty where no topic of the table is meant.
        is_narrow: It is about a kind of a topic ("Australian slang"); a trait about the whole topic is another one.
    """

    sentence: str
    form: str
    trait_name: str = ""
    trait_description: str = ""
    amount: Amount = "unspecified"
    is_narrow: bool = False


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause with a topic.

    Attributes:
        text: The clause without the reason given for the request.
        full_text: The clause with it.
        earlier: The clauses before it, which have no topic.
        before, topic_words, after: The words of the topic and those around them; those after it only up to an "and".
        all_after: All words after the topic.
    """

    text: str
    full_text: str
    earlier: str
    topic: Topic
    before: str
    topic_words: str
    after: str
    all_after: str

    @property
    def is_about_a_thing(self) -> bool:
        """Return whether the topic is a quality of something else than the agent's writing: "a shorter route"."""
        if not self.topic.is_quality:
            return False
        thing = pattern_named("thing before its quality").search(self.before)
        if has_pattern("before the quality of a thing", self.before):
            thing = re.match(r" (\w+)", self.after) or thing
        return thing is not None and pattern_named("the agent's writing").fullmatch(thing[1]) is None


@dataclass(slots=True)
class TurningWords:
    """Counts of the words that turn the meaning of a clause around. Several negations negate once ("no uses nunca")."""

    is_negated: bool
    ends: int
    lessenings: int
    turns: int

    @property
    def asks_for_less(self) -> bool:
        """Return whether a word says so by itself: a negation, an end or a lessening."""
        return self.is_negated or self.ends > 0 or self.lessenings > 0


@dataclass(frozen=True, slots=True)
class Direction:
    """The direction of a request: whether more or less of a topic is asked for.

    Attributes:
        is_less: Less is asked for, or an end.
        is_soft: Words such as "so much" make an end a less.
        asks_for_end: A word for an end, or a negation, was read.
    """

    is_less: bool
    is_soft: bool
    asks_for_end: bool


# -- a message
def masked(text: str) -> str:
    """Return the author's own words with `QUOTE` for each quotation and `CODE` for each stretch of code.

    Of a text over 4,000 characters the first and the last 2,000.
    """
    text = own_words(text.replace("\r\n", "\n").replace("\r", "\n")).text
    text = re.sub("[\ue000-\ue0ff]", " ", text)  # nobody but this function may set the marks
    text = pattern_named("block mark").sub(f"\n{QUOTE}\n", text)
    text = pattern_named("inline code").sub(f" {CODE} ", text)
    text = pattern_named("quoted text").sub(f" {QUOTE} ", text)
    text = pattern_named("code line").sub(f" {CODE} ", text)
    if len(text) <= LONGEST_READ:
        return text
    half = LONGEST_READ // 2
    return f"{text[:half]}\n{text[-half:]}"


def parse_request(text: str) -> ParsedRequest | None:
    """Return the first request of a message whose behaviour is clear (it has a trait's name), else the first one; None without any.

    Reads up to 4,000 characters and 60 sentences, from both ends of a longer message. A request that only speaks of a piece of work
    which the message asks for ("Write a letter. Make it formal.") is none; one that the next sentence denies is not clear.
    """
    sentences = [sentence.strip() for sentence in pattern_named("sentence").findall(masked(text)) if sentence.strip()]
    if len(sentences) > MOST_SENTENCES:
        sentences = sentences[: MOST_SENTENCES // 2] + sentences[-MOST_SENTENCES // 2 :]
    comparable = [folded(sentence)[:LONGEST_SENTENCE] for sentence in sentences]
    asks_for_work = any(pattern_named("piece of work").search(sentence) for sentence in comparable)
    first_unclear: ParsedRequest | None = None
    for number, sentence in enumerate(comparable):
        request = _parse_sentence(sentence)
        if request is None or (asks_for_work and _is_about_the_work(sentence, request)):
            continue
        request = replace(request, sentence=sentences[number].translate({ord(QUOTE): "…", ord(CODE): "…"}))
        next_sentence = "".join(comparable[number + 1 : number + 2])  # empty after the last one
        if request.amount != "stop" and pattern_named("answer no").match(next_sentence):  # "Use emojis? No thanks."
            request = replace(request, trait_name="")  # not clear
        if request.trait_name:
            return request
        first_unclear = first_unclear or request
    return first_unclear


def _is_about_the_work(sentence: str, request: ParsedRequest) -> bool:
    """Return whether a sentence beside one that asks for a piece of work is about that: "Write a letter. Make it formal."."""
    if has_pattern("piece of work", sentence) or has_pattern("words for a lasting request", sentence):
        return False
    return request.form in ("order", "fragment", "complaint")


def _parse_sentence(sentence: str) -> ParsedRequest | None:
    """Parse a folded sentence in the languages that know most of its words; return the first request found, None without any.

    None too where it begins with a quotation or code, or speaks about others or the past.
    """
    is_question = sentence.rstrip()[-1:] in "?？؟"
    sentence = pattern_named("several addressees").sub("you", sentence)
    sentence = pattern_named("everyone asked").sub(r"\1 you", sentence)
    body = sentence.rstrip(" .!?…。！？؟।")
    if not body or body[0] in (QUOTE, CODE) or has_pattern("no request", body):
        return None
    if pattern_named("about others or the past").search(pattern_named("reason").sub("", body)):
        return None
    body = pattern_named("comma inside a clause").sub(" ", body.lstrip("¿¡ -*•"))
    body = pattern_named("wish with if").sub(r"\1 ", body)
    body = pattern_named("would be kind").sub(r"\1 good", body)
    likely = _likely_languages(body)
    for language in likely:
        request = _Sentence.of(language, body, is_question=is_question, is_only_language=len(likely) == 1).parse()
        if request is not None:
            return request
    return None


def _likely_languages(body: str) -> list[Language]:
    """Return the languages that know most words of a sentence; English where none knows any."""
    counts = {name: language.count_request_words(body) for name, language in languages().items()}
    most = max(counts.values())
    if not most:
        return [languages()["en"]]
    return [languages()[name] for name, count in counts.items() if count == most]


def _without_lead(text: str, language: Language) -> str:
    """Return the text without what may stand before a request, such as "please" or "hey"."""
    while (lead := language["lead"].match(text)) and lead.end() < len(text):
        text = text[lead.end() :].lstrip(" ,:;-–")
    return text


@dataclass(frozen=True)
class _Sentence:
    """A sentence as one language reads it.

    Attributes:
        body: The sentence, folded.
        rest: Without what may stand before a request, and without words that say nothing of it.
        is_question: It ends in a question mark.
        is_only_language: No other language knows as many of its words.
        is_more: "Not enough" was read as "more".
    """

    language: Language
    body: str
    rest: str
    is_question: bool
    is_only_language: bool
    is_more: bool

    @classmethod
    def of(cls, language: Language, body: str, *, is_question: bool, is_only_language: bool) -> _Sentence:
        """Return the sentence with `rest`: without what stands before a request ("please"), and a name that addresses the agent.

        "Not formal enough" is read as "more formal", and `is_more` says so. What has a word of an order in it is no name.
        """
        rest = " ".join(language["neutral"].sub(" ", body).split())
        rest = pattern_named("not good enough").sub(r"more \1", rest)
        rest = pattern_named("not enough of it").sub(r"\1 more", rest)
        rest = " ".join(rest.split())
        is_more = rest != body and " more" in f" {rest}" and " more" not in f" {body}"
        rest = _without_lead(rest, language)
        vocative = pattern_named("vocative").match(rest)
        if vocative and not language.has(vocative[0], "not", "end", "less"):
            rest = _without_lead(rest[vocative.end() :], language)
        return cls(language, body, rest, is_question, is_only_language, is_more)

    @cached_property
    def is_lasting(self) -> bool:
        """Return whether it says that it is to last ("always", "in your answers")."""
        return has_pattern("words for a lasting request", self.rest)

    @cached_property
    def is_for_work(self) -> bool:
        """Return whether it asks for a piece of work, such as a letter, and not for a manner."""
        return has_pattern("piece of work", self.rest) and not self.is_lasting

    def parse(self) -> ParsedRequest | None:
        """Return the request that the sentence makes; None where it makes none."""
        form = self.form()
        if not form:
            return None
        question = pattern_named("negated question").match(self.rest) if form == "question" else None
        if question:  # "can't you be nicer": its negation asks for nothing
            return replace(self, rest=self.rest[question.end() :].strip()).parse_as(form)
        return self.parse_as(form)

    # -- the kind of sentence
    def form(self) -> str:
        """Return the kind of request that the sentence could be (see `ParsedRequest.form`); empty where it can be none.

        Words that ask decide first. Another question is no request unless it is a short order ("less emoji?"), has a "too" or begins with
        "how about". Then the first that fits counts: complaint, statement of an inability (no request), order, fragment.
        """
        language, rest = self.language, self.rest
        if language.name in ("others", "unspaced"):  # several languages, with a few words of each
            return "order" if self.is_order_in_other_language() else ""
        if language.begins(rest, "ask"):
            if self.is_about_its_author():
                return ""
            return "question" if self.is_question else "wish"
        if self.is_question and not language.has(rest, "too") and not rest.startswith(("how about", "what about")):
            is_short_order = language.begins(rest, "less", "more", "not") and len(rest.split()) <= 6
            return "order" if is_short_order else ""
        if self.is_complaint():
            return "complaint"
        if pattern_named("statement of inability").match(rest):
            return ""
        if self.is_order() or self.is_topic_with("nouns of answers", needs_comparative=True):
            return "order"
        if self.is_foreign_fragment():
            return "fragment"
        if self.is_topic_with("please", needs_comparative=False):
            return "order"
        return "fragment" if self.is_name_of_a_language() else ""

    def is_order_in_other_language(self) -> bool:
        """Return whether a sentence of a language of which little is known asks, or is short and has a word of an order."""
        if self.language.has(self.rest, "ask"):
            return True
        longest = 60 if self.language.name == "others" else 40  # characters; scripts without spaces say more in fewer
        is_short = len(self.rest) <= longest and not self.is_question
        return is_short and self.language.has(self.rest, *ORDER_BEGINNINGS)

    def is_about_its_author(self) -> bool:
        """Return whether a sentence that begins like a wish is about its author: "I'd like to sleep", "I prefer short hair"."""
        is_preference = pattern_named("preference of the author").match(self.rest) is not None
        if is_preference and not has_pattern("preference about the agent", self.rest):
            return True
        if not pattern_named("wish about oneself").match(self.rest):
            return False
        return not has_pattern("addressed to the agent", self.rest)

    def is_complaint(self) -> bool:
        """Return whether it finds fault with too much, too little or a repetition."""
        rest = self.rest
        if not self.language.begins(rest, "fault") or has_pattern("praise", rest):
            return False
        return self.language.has(rest, "too", "more") or has_pattern("complaint of repetition", rest)

    def is_order(self) -> bool:
        """Return whether it begins like an order."""
        if self.lasting_order(self.rest) is not None:
            return True
        if self.language.begins(self.rest, "order", *ORDER_BEGINNINGS):
            return True
        return pattern_named("calling the user").match(self.rest) is not None

    def is_topic_with(self, words_after: str, *, needs_comparative: bool) -> bool:
        """Return whether it is nothing but a topic and these words: "shorter answers", "French, please"."""
        topic = find_topic(self.rest)
        if topic is None or topic.start > 0:
            return False
        if needs_comparative and not self.is_comparative("", self.rest[: topic.end]):
            return False
        return pattern_named(words_after).fullmatch(self.rest[topic.end :]) is not None

    def is_foreign_fragment(self) -> bool:
        """Return whether it is a short sentence, certainly not English, with a word of an order: "keine Emojis"."""
        if not self.is_only_language or self.language.name == "en" or len(self.rest.split()) > 4:
            return False
        return self.language.has(self.rest, *ORDER_BEGINNINGS)

    def is_name_of_a_language(self) -> bool:
        """Return whether it says little more than a language to answer in."""
        for pattern in spoken_languages().values():
            if spoken := pattern.search(self.rest):
                is_most_of_it = spoken.start() <= 8 and len(self.rest) - spoken.end() <= 12
                return is_most_of_it and not self.rest.startswith(("i ", "i'"))
        return False

    # -- what is asked for
    def parse_as(self, form: str) -> ParsedRequest | None:
        """Return the request of the first clause with a topic; where none has one, a request outside of the table of topics."""
        clause = self.first_clause_with_topic()
        if clause is None:
            return self.parse_without_topic(form)
        if clause.is_about_a_thing or self.is_noun_to_be_called(clause):
            return None
        return self.parse_clause(form, clause)

    def first_clause_with_topic(self) -> Clause | None:
        """Return the first clause with a topic, and where in it that stands; None where no clause has one.

        The reason given for a request ("because …") is cut off, but not where the clause is nothing but a reason.
        """
        earlier = ""
        for full_text in self.clauses():
            text = full_text
            if not pattern_named("reason").match(f" {full_text}"):
                text = pattern_named("reason").sub("", full_text)
            match = find_topic(text)
            if match is not None:
                return Clause(
                    text=text,
                    full_text=full_text,
                    earlier=earlier,
                    topic=match.topic,
                    before=text[: match.start],
                    topic_words=text[match.start : match.end],
                    after=pattern_named("and").split(text[match.end :], maxsplit=1)[0],
                    all_after=text[match.end :],
                )
            earlier += f" {full_text}"
        return None

    def clauses(self) -> Iterator[str]:
        """Yield the parts of the sentence between commas and conjunctions, split at each "and" before another order, too."""
        separator = "clauses in pt" if self.language.name == "pt" else "clauses"
        for part in pattern_named(separator).split(self.rest):
            begin = 0
            for conjunction in pattern_named("and").finditer(part):
                if self.language.begins(part, "order", *ORDER_BEGINNINGS, at=conjunction.end()):
                    yield part[begin : conjunction.start()]
                    begin = conjunction.end()
            yield part[begin:]

    def is_noun_to_be_called(self, clause: Clause) -> bool:
        """Return whether "call me a taxi" asks for a taxi, not for a name."""
        topic_on = f"{clause.topic_words}{clause.all_after}"
        is_noun = pattern_named("noun to be called").match(topic_on) is not None
        return is_noun and not self.language.has(clause.before, "turning")

    def parse_clause(self, form: str, clause: Clause) -> ParsedRequest | None:
        """Return what a clause asks for about its topic; None where it asks for nothing. What is not certain has no trait's name.

        A request that only holds for one piece of work is read as an order to last where it says that it is one, else it is none.
        """
        unclear = ParsedRequest(self.rest, form)
        direction = self.direction(clause.before, clause.topic_words, clause.after)
        if self.is_ambiguous(clause, direction):
            return unclear
        if form == "complaint" and not self.is_more:
            fault = self.direction_of_fault(clause, direction)
            if fault is None:
                return None
            direction = fault
        if form != "complaint" and direction.is_less:
            instead = self.parse_what_is_wanted_instead(form, clause)
            if instead is not None:  # it counts if more is asked for; two requests that do not go together are unclear
                return instead if instead.amount == "more" else unclear
        # "Stop being so cheerful" asks for an end of it: "so" only stresses. "So wordy" asks for less, not for none.
        is_about_length = clause.topic.name in LENGTH_TOPICS
        if not is_about_length and self.is_emphatic(clause):
            direction = replace(direction, is_soft=False)
        if form != "complaint" and self.is_for_work:
            return self.parse_lasting_order(form, self.rest)
        if self.says_no_need_to_compare(clause):
            return None
        if not direction.is_less and self.is_for_content(form, clause):
            return self.parse_lasting_order(form, self.rest)
        if not direction.is_less and self.language.has(clause.earlier, *TURNING_KINDS):
            return unclear  # a word of an earlier clause may turn this one around, too
        if form == "complaint" and direction.is_less and clause.topic.opposite:  # "too long" asks for short answers
            opposite = topics()[clause.topic.opposite]
            return ParsedRequest(self.rest, form, opposite.name, opposite.description, "more")
        if self.has_condition(clause):  # "no jokes while I work" is not "never"
            direction = replace(direction, is_soft=True)
        following = self.rest.partition(clause.text)[2]
        amount = self.amount(clause.before, clause.topic_words, clause.after, direction, following=following)
        request = ParsedRequest(self.rest, form, clause.topic.name, clause.topic.description, amount)
        if clause.topic.name in topics() and self.language.name == "en":  # a name or a language is narrow already
            return self.narrowed(request, clause)
        return request

    def is_ambiguous(self, clause: Clause, direction: Direction) -> bool:
        """Return whether the request could mean the opposite of what its words count up to."""
        if has_pattern("double negation", clause.text):
            return True
        if not self.is_understood(clause.before, clause.after):
            return True
        turns_before = self.language.has(clause.earlier, *TURNING_KINDS)
        if direction.is_less and turns_before and pattern_named("subordinate clause").match(clause.text):
            return True  # "I don't like it, when you avoid emojis"
        return direction.is_less and has_pattern("without", clause.all_after)

    def is_understood(self, before: str, after: str) -> bool:
        """Return whether each word beside one that turns the meaning is known: another ("don't spare") could turn it, too.

        True where no word turns it. False for two negations before the topic in languages in which they might cancel each other.

        Args:
            before, after: The words before and after the topic.
        """
        language = self.language
        is_verb_last = language.name in VERB_LAST_LANGUAGES
        turning_before = language["turning"].search(before)
        turning_after = language["turning"].search(after)
        if turning_before is None:
            return not (turning_after and is_verb_last) or self.are_known_words(before, after)
        if turning_after and language.name in ("de", "nl"):
            return has_pattern("not at the end", after)
        if pattern_named("taken away, after the topic").match(after):
            return False  # "don't keep jokes away"
        first_after = "".join(after.split()[:1])
        is_first_known = not language["known"].sub("", first_after)
        if pattern_named("verb with an object").search(before) and not is_first_known:
            return False
        if language.name in ("en", "de", "nl") and language.count(before, "not") > 1:
            return False
        if is_verb_last:
            return self.are_known_words(before, after)
        return self.are_known_words(before[turning_before.start() :])

    def are_known_words(self, before: str, after: str = "") -> bool:
        """Return whether each of the words is known; `after` are those after the topic, where they count."""
        words = pattern_named("verb with adjectives").sub(r"\1 ", before)
        unknown_words = self.language["known"].sub(" ", f"{words} {after}").strip(" ,:;'-–")
        return not unknown_words

    def direction_of_fault(self, clause: Clause, direction: Direction) -> Direction | None:
        """Return the direction of what a complaint is about; None where it is negated, or finds nothing too much in what the agent writes.

        "So many emoji" asks for less though no word says so.
        """
        before = clause.before
        if self.language.has(before, "not"):
            return None
        is_quantity = has_pattern("complaint of quantity", before)  # "so many emoji"
        if is_quantity and not direction.is_less and not self.language.has(before, "more"):
            direction = replace(direction, is_less=True, is_soft=True)
        if not direction.is_less:
            return None
        is_about_the_agent = not pattern_named("impersonal subject").match(self.rest) or re.search(r"\byou", self.rest)
        is_counted = re.search(r"\b(?:many|much|viele?)\b", before) and not clause.after.strip()  # "too many emoji"
        if is_about_the_agent or is_counted or clause.topic.is_of_texts:
            return direction
        return None  # "it's too cold today"

    def parse_what_is_wanted_instead(self, form: str, clause: Clause) -> ParsedRequest | None:
        """Parse what follows a comparative that is not wanted: "don't be shorter, be longer"."""
        later = self.rest.partition(clause.full_text)[2].strip(" ,:;-–—")
        if not later or not self.is_comparative(clause.before, clause.topic_words):
            return None
        return replace(self, rest=later).parse_as(form)

    def is_emphatic(self, clause: Clause) -> bool:
        """Return whether "so" only stresses what is to end: "stop being so cheerful", not "so often" nor "no need to be so formal"."""
        stressed = pattern_named("stressing so").search(clause.before)
        if stressed is None or has_pattern("no need", self.rest):
            return False
        words_around = f"{clause.before[: stressed.start()]} {clause.after}"
        return not self.language.has(words_around, "soft", "less", "too")

    def says_no_need_to_compare(self, clause: Clause) -> bool:
        """Return whether it says that nothing has to change: "no need to be more formal"."""
        if not has_pattern("no need", self.rest):
            return False
        is_comparative = self.is_comparative(clause.before, clause.topic_words)
        return is_comparative or self.language.has(f"{clause.before} {clause.after}", "less")

    def is_for_content(self, form: str, clause: Clause) -> bool:
        """Return whether a bare request is for a piece of work, or says too little to be one of manner: "a joke, please".

        Never where it says "more", how often, or that it is to last: then it is about the manner.
        """
        language, rest = self.language, self.rest
        is_comparative = self.is_comparative(clause.before, clause.topic_words)
        is_more = is_comparative or language.has(f"{clause.before}{clause.topic_words}{clause.after}", "more")
        if is_more or self.is_lasting or amount_by_frequency(rest):
            return False
        asks_for_content = clause.topic.is_often_work or pattern_named("asks for content").search(rest)
        if asks_for_content and "answer" not in rest:
            return True
        if clause.topic.name not in topics():  # a name for the user, or a language to answer in
            return False
        ask = language["ask"].match(rest)
        if ask and language.name == "en" and form in ("question", "wish"):
            after_asking = pattern_named("polite words after asking").sub("", rest[ask.end() :])
            if not language.begins(after_asking, "order"):
                return True
        if language.has(clause.before, "not", "end") or has_pattern("only", rest):
            return False
        if language.name in ("others", "unspaced") or form == "fragment":
            return True
        is_only_a_noun = not clause.before and not is_comparative and "your" not in rest
        return is_only_a_noun and pattern_named("verb of address").match(rest) is None  # "tutoie-moi" is no noun

    def has_condition(self, clause: Clause) -> bool:
        """Return whether the request holds only at times: "when I am sad"."""
        if has_pattern("condition", clause.all_after):
            return True
        reason = clause.full_text[len(clause.text) :].lstrip(" ,")
        return pattern_named("condition").match(reason) is not None

    def narrowed(self, request: ParsedRequest, clause: Clause) -> ParsedRequest:
        """Return the request as narrow as its words: of "Australian slang", of "jokes about politics".

        It has no name where what it is about stands in another message: "jokes about that".
        """
        is_noun = not clause.topic.is_quality or has_pattern("noun of a quality", clause.topic_words)
        modifier = self.modifier(clause.before) if is_noun else ""
        about = pattern_named("subject after the topic").match(clause.after)
        subject = about["what"] if about else ""
        if self.language.has(subject, "soft"):  # "about everything" is how much, not what about
            subject = ""
        if pattern_named("subject in another message").fullmatch(subject):
            return ParsedRequest(request.sentence, request.form)
        if not modifier and not subject:
            return request
        name = f"{modifier} {clause.topic_words}" if modifier else clause.topic.name
        if subject:
            name += f" about {from_the_agents_side(subject)}"
        return replace(request, trait_name=short_name(name), trait_description="", is_narrow=True)

    def modifier(self, before: str) -> str:
        """Return the words right before a topic that say which kind of it is meant: "Australian" of "using Australian slang"."""
        words: list[str] = before.split()
        kind: list[str] = []
        while words and self.language["known"].sub("", words[-1]):
            kind.insert(0, words.pop())
        if not kind or len(kind) > 3 or not pattern_named("before a modifier").search(f"{' '.join(words)} "):
            return ""
        return " ".join(kind)

    # -- direction and amount
    def direction(self, before: str, topic_words: str, after: str) -> Direction:
        """Return whether more or less of a topic is asked for, from the words around it.

        Each word that turns the meaning counts, all negations together as one: it is less where their number is odd.
        """
        turning = self.turning_words(before, after)
        is_too_much = self.says_too_much(before, after)
        is_less = (turning.is_negated + turning.ends + turning.lessenings + turning.turns) % 2 == 1
        if is_too_much and not turning.asks_for_less:
            is_less = True
        is_soft = is_too_much or turning.lessenings > 0 or self.language.has(f"{before}\n{after}", "soft")
        if turning.is_negated and self.is_comparative(before, topic_words):  # "don't be shorter" asks for no end of it
            is_soft = True
        return Direction(is_less, is_soft, asks_for_end=turning.ends > 0 or turning.is_negated)

    def turning_words(self, before: str, after: str) -> TurningWords:
        """Count the words that turn the meaning around, before a topic and, where the language or a verb allows it, after it.

        In languages with the verb at the end ("Emojis weglassen") those after the topic count alone where none stands before it. "Little
        of it" after the topic is a lessening in each language.
        """
        language = self.language
        name = self.language.name
        is_little_after = has_pattern("little of it, after the topic", after)
        words_after = self.count_turning_words(after)
        if name in VERB_LAST_LANGUAGES and not language.has(before, "turning"):
            words_after.lessenings += is_little_after
            return words_after
        words = self.count_turning_words(before)
        if name in ("de", "nl") and has_pattern("not at the end", after):  # "vergiss die Witze nicht"
            words.is_negated = not words.is_negated
        elif not words.asks_for_less and name == "en":
            words.is_negated = pattern_named("negation after the topic").match(after) is not None
        elif not words.asks_for_less:
            words.is_negated = words_after.is_negated
        words.lessenings += is_little_after
        if name != "en" or pattern_named("less after the topic").match(after) or language.has(after, "too"):
            if not words.asks_for_less:
                words.ends += words_after.ends
            words.lessenings += words_after.lessenings
        elif pattern_named("verb after the topic").match(after):  # "emoji have to go"
            words.ends += words_after.ends
            words.lessenings += words_after.lessenings
        return words

    def count_turning_words(self, text: str) -> TurningWords:
        """Count the words of a text that turn the meaning around."""
        return TurningWords(
            is_negated=self.language.has(text, "not"),
            ends=self.language.count(text, "end"),
            lessenings=self.language.count(text, "less"),
            turns=self.language.count(text, "turn"),
        )

    def says_too_much(self, before: str, after: str) -> bool:
        """Return whether a "too" belongs to the topic: in the three words before it, in English and Portuguese the five after it, too.

        In German and Dutch only the word right before it.
        """
        language = self.language
        near = " ".join(before.split()[-3:])
        if language.name in ("de", "nl"):
            word_before = pattern_named("word before the topic, verb last").search(before)
            near = word_before[0] if word_before else ""
        if language.has(near, "too"):
            return True
        return language.name in ("en", "pt") and language.has(" ".join(after.split()[:5]), "too")

    def is_comparative(self, before: str, topic_words: str) -> bool:
        """Return whether the topic is one of more: "more formal", "shorter"."""
        return self.language.has(before, "more") or self.language.comparative.search(topic_words) is not None

    def amount(self, before: str, topic_words: str, after: str, direction: Direction, following: str = "") -> Amount:
        """Return how much of it is asked for: by the direction, else by words for how often, and by "only".

        Args:
            before, topic_words, after: The words of the topic and those around them.
            following: The words of the sentence after the topic's clause.
        """
        if direction.is_less:
            return "stop" if direction.asks_for_end and not direction.is_soft else "less"
        is_more = self.language.has(f"{before} {after}", "more") or self.is_comparative(before, topic_words)
        if is_more or direction.asks_for_end:  # an end that was turned around: "don't stop", "not without"
            return "more"
        by_frequency = amount_by_frequency(self.body)
        if not has_pattern("only", self.body):
            return by_frequency or "unspecified"
        if by_frequency in ("rarely", "sometimes"):
            return by_frequency
        is_some = by_frequency == "unspecified"  # "only now and then"
        if (
            is_some
            or self.is_little(before, topic_words)
            or pattern_named("only in some places").search(f"{after}{following}")
        ):
            return "sometimes"
        return by_frequency or "always"

    def is_little(self, before: str, topic_words: str) -> bool:
        """Return whether a small number or amount of the topic is named: "only one emoji"."""
        # `before` lacks "a few" and "a bit of", which say nothing elsewhere.
        counted = self.body.partition(topic_words)[0] if topic_words else before
        if has_pattern("small number", counted):
            return True
        return has_pattern("small amount at the end", self.body)

    # -- outside of the table of topics
    def parse_without_topic(self, form: str) -> ParsedRequest | None:
        """Return a request for a way to speak, a word or a habit, else an order to last; None where it is none of these.

        English only, but for quoted words. What points at earlier messages alone ("do that again") is a request that is not clear.
        """
        body = self.rest
        if ask := self.language["ask"].match(self.rest):
            body = pattern_named("before a manner").sub("", self.rest[ask.end() :].strip())
        if pattern_named("points at earlier messages").fullmatch(body):
            return ParsedRequest(self.rest, form)
        if self.is_for_work:
            return self.parse_lasting_order(form, body)
        if speaking := pattern_named("speaking like").search(body):
            return self.parse_way_of_speaking(form, speaking)
        manner = pattern_named("manner").search(body)
        if manner and not has_pattern("not about manner", body):
            return self.parse_manner(form, body, manner)
        return self.parse_lasting_order(form, body)

    def parse_way_of_speaking(self, form: str, match: Match) -> ParsedRequest:
        """Return a request to speak like another person or in some way; without a trait's name where the words name nothing.

        Args:
            match: Of the pattern ``speaking like``: the words are in its group ``what``, or in ``other`` or ``act`` for a person.
        """
        words = match["what"] or match["other"] or match["act"]
        name = short_name(words if match["what"] else f"like {words}")
        if not name:
            return ParsedRequest(self.rest, form)
        before = self.rest[: max(0, self.rest.find(words))]
        direction = self.direction(before, words, "")
        return ParsedRequest(
            self.rest, form, f"speaking {name}", f"Speaks {name}.", self.amount(self.rest, "", "", direction)
        )

    def parse_manner(self, form: str, body: str, match: Match) -> ParsedRequest | None:
        """Return a request about a word or a habit: "stop saying great question".

        A bare "say …", with no word on how much or how often, is one only as an order to last; else None.

        Args:
            body: `rest` without the words that ask.
            match: Of the pattern ``manner`` in `body`; the words are in one of its groups ``what``, ``quoted`` and ``quality``.
        """
        group = next(name for name in ("what", "quoted", "quality") if match[name])
        words = match[group]
        begin = self.rest.find(body)
        before = self.rest[: begin + match.start(group)]
        direction = self.direction(before, "", self.rest[begin + match.end(group) :])
        says_how_much = self.language.has(self.rest, "more") or amount_by_frequency(self.rest)
        if not direction.is_less and group == "what" and not says_how_much:
            return self.parse_lasting_order(form, body)
        if re.search(r"\bless\b", words):
            direction = replace(direction, is_less=True)
        if has_pattern("too often", words):
            direction = replace(direction, is_soft=True)
        place_in_sentence = pattern_named("place in the sentence").search(before)
        if place_in_sentence and not has_pattern("too often", self.rest):
            # In "stop ending every sentence with …" the "every" does not ask for less.
            direction = replace(direction, is_soft=False)
        amount = self.amount(f"{before} {words}", "", "", direction)
        name = self.name_of_manner(group, words, place_in_sentence)
        description = f"{name[:1].upper()}{name[1:]}, as a user asked for it." if name else ""
        return ParsedRequest(self.rest, form, name, description, amount)

    def name_of_manner(self, group: str, words: str, place_in_sentence: Match | None) -> str:
        """Return the trait's name for a manner, such as "ending every sentence with traveler"; empty where it is not clear."""
        if has_pattern("and", words) and len(words.split()) > 8:
            return ""
        name = short_name(words)
        if name and group == "quality":
            name = f"being {name}"
        if name and place_in_sentence is not None:
            verb = {"end": "ending", "start": "starting", "begin": "beginning"}[place_in_sentence[1]]
            name = f"{verb} {place_in_sentence[2]} {name}"[:LONGEST_NAME].rstrip()
        return name

    def lasting_order(self, body: str) -> Match | None:
        """Match an order that is to last ("from now on give prices in euros"), in English."""
        is_lasting = self.language.name == "en" and pattern_named("order to last").search(self.body)
        return pattern_named("order in own words").match(body) if is_lasting else None

    def parse_lasting_order(self, form: str, body: str) -> ParsedRequest | None:
        """Return an order that is to last and is about no topic; its trait has the order's own words. None where it is no such order.

        It has no trait's name where it quotes something or is over 300 characters long; a name over 60 is cut at a word.
        """
        match = self.lasting_order(body)
        if match is None:
            return None
        words = from_the_agents_side(pattern_named("from now on").sub(" ", match["what"]))
        if QUOTE in words or CODE in words or len(words) > LONGEST_WORDING:
            return ParsedRequest(self.rest, form)
        words = " ".join(re.sub(r"[^\w\s'&+./,-]", " ", words).split())
        name = words
        if len(words) > LONGEST_NAME:
            name = f"{words[:LONGEST_NAME].rsplit(' ', 1)[0]} …"
        amount: Amount = "stop" if match["not"] else "always"  # the group of a negation: "from now on don't …"
        return ParsedRequest(self.rest, form, name, f"In a user's words: {words}.", amount)
