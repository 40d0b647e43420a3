"""Ask what a file does not say for certain: each question has its best guess, and its answer changes how the file is read.

`questions_of` makes the questions from what `agents.transcripts.imports.jobs` found in the file; `options_with` turns an answer into
options. Which questions were answered, and how, is stored with the import.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from zoneinfo import available_timezones

from django.utils import timezone

from agents.kit.files.times import parse_time
from agents.kit.text.wording import time_text
from agents.models import Agent, Import
from agents.transcripts.importer import DAY_FIRST, MONTH_FIRST, ReadOptions
from agents.transcripts.readers.csv_table import column_map, tag_key, usual_tag
from agents.transcripts.readers.plumbline import MESSAGE_KEYS
from agents.transcripts.records import OptionError

BOT = "bot"
AGENT = "agent."  # and the speaker's name
COLUMN = "column."  # and our field
CHANNEL, TAGS, DATES, TIME_ZONE = "channel", "tags", "dates", "time_zone"
BOT_NAMES = frozenset({"assistant", "bot", "agent", "ai", "model", "gpt", "chatgpt", "chatbot", "char"})
FEW_SPEAKERS = 3  # beside the likely bots; more are folded
MOST_COLUMNS = 12  # that are offered for a question
MOST_TAG_VALUES = 50  # a column with more different values is hardly a tag
MOST_AGENTS = 500
NONE = ""
DATE = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}")


class NotAnAnswer(ValueError):
    """An answer that the question does not have. Says which it has."""


@dataclass(frozen=True, slots=True)
class Option:
    """An answer that can be given.

    Attributes:
        examples: What the file says there.
        messages: Of a speaker; 0 for other options.
    """

    value: str
    label: str
    examples: Sequence[str] = ()
    messages: int = 0


@dataclass(slots=True, kw_only=True)
class Question:
    """A question about the file.

    Attributes:
        name: What its answer is called in a line, such as "Bot".
        chosen: The values that are answered, or the best guess.
        several: Whether several options can be chosen.
        is_open: Whether the guess is not certain and nobody has answered.
        folded: Options that are rarely the answer, behind one line with the text `folded_as`.
        is_list: Whether the options are too many to stand there side by side.
    """

    id: str
    text: str
    name: str
    options: list[Option]
    chosen: list[str]
    is_open: bool
    help: str = ""
    several: bool = False
    is_list: bool = False
    folded: list[Option] = field(default_factory=list)
    folded_as: str = ""

    @property
    def is_about_agent(self) -> bool:
        return self.id.startswith(AGENT)

    @property
    def answer(self) -> str:
        """Return the answer or the guess in a few words."""
        labels = [option.label for option in (*self.options, *self.folded) if option.value in self.chosen]
        return ", ".join(labels) or "none"


def questions_of(job: Import) -> list[Question]:
    """Return the questions about the file of an import in their order, those that are answered or certain included."""
    options = ReadOptions(**job.choices)
    table = _Table(job.contents, options)
    questions = table.needed_columns()
    if open_question(questions) or not job.contents.get("messages"):
        return questions
    questions += _about_speakers(job, options)
    questions += table.questions(job.answers)
    questions += _about_times(job, options)
    return questions


def open_question(questions: Sequence[Question]) -> Question | None:
    """Return the next question that has to be asked; None where all is certain or answered."""
    return next((question for question in questions if question.is_open), None)


def options_with(job: Import, question: Question, values: Sequence[str]) -> ReadOptions:
    """Return the options of an import as an answer changes them.

    Raises:
        NotAnAnswer: The question has no such answer.
    """
    allowed = [option.value for option in (*question.options, *question.folded)]
    for value in values:
        if value not in allowed:
            raise NotAnAnswer(f"{question.text} {value[:60]!r} is no answer to that; choose one that is offered")
    if not question.several and len(values) != 1:
        raise NotAnAnswer(f"{question.text} Choose one answer")
    options = ReadOptions(**job.choices)
    if question.id == BOT:
        return replace(options, speaker_map=_map_with_bots(job, options, values))
    if question.id == TAGS:
        columns = {field: column for field, column in options.columns.items() if not field.startswith("tags.")}
        for column in values:
            columns[f"tags.{usual_tag(column) or tag_key(column)}"] = column
        return replace(options, columns=columns)
    value = values[0]
    if question.id.startswith(AGENT):
        return replace(options, speaker_map={**options.speaker_map, question.id.removeprefix(AGENT): value})
    if question.id == CHANNEL:
        return replace(options, columns={**options.columns, "channel": value})
    if question.id.startswith(COLUMN):
        return replace(options, columns={**options.columns, question.id.removeprefix(COLUMN): value})
    if question.id == DATES:
        return replace(options, dates=value)
    return replace(options, time_zone=value)


def _map_with_bots(job: Import, options: ReadOptions, bots: Sequence[str]) -> dict[str, str]:
    """Return the speaker map in which bots are no longer said to be no agents, and other agents are."""
    speaker_map = dict(options.speaker_map)
    for row in job.contents["speakers"]:
        name = row["name"]
        if name not in bots and (row["slug"] or row["why"]):
            speaker_map[name] = NONE
        elif name in bots and speaker_map.get(name) == NONE:
            del speaker_map[name]
    return speaker_map


# -- who speaks
def _about_speakers(job: Import, options: ReadOptions) -> list[Question]:
    """Return who of the speakers is a bot, and for each bot that is no agent by its name, which agent it is."""
    rows = job.contents["speakers"]
    if not rows:
        return []
    likely, is_certain = _likely_bots(rows, job.contents["channels_total"])
    bots = list(job.answers.get(BOT, likely))
    bots += [row["name"] for row in rows if row["why"] and row["name"] not in bots]  # must be decided before the import
    offered, folded = _offered_speakers(rows, likely, job.contents.get("examples", {}))
    total = job.contents["speakers_total"] - len(offered)
    who = Question(
        id=BOT,
        text="Who is the bot?",
        name="Bot",
        options=offered,
        chosen=bots,
        is_open=BOT not in job.answers and not is_certain,
        help="Its messages can be measured. Choose several if several speakers are agents of yours, none if nobody is.",
        several=True,
        folded=folded,
        folded_as=f"{total:,} more speakers",
    )
    if who.is_open:
        return [who]
    slugs = {row["name"]: row["slug"] for row in rows}
    names = [name for name in bots if name in slugs and (not slugs[name] or name in options.speaker_map)]
    return [who, *_which_agents(names, options, job.contents.get("first_system_prompt", ""))]


def _offered_speakers(
    rows: Sequence[Mapping[str, Any]], likely: Collection[str], examples: Mapping[str, Sequence[str]]
) -> tuple[list[Option], list[Option]]:
    """Return the speakers to choose from, likely bots first, and those that are folded below them because they are many."""
    options = [Option(row["name"], row["name"], examples.get(row["name"], ()), row["messages"]) for row in rows]
    bots = [option for option in options if option.value in likely]
    others = [option for option in options if option.value not in likely]
    if len(others) <= FEW_SPEAKERS:
        return bots + others, []
    if bots:
        return bots, others
    return others[:FEW_SPEAKERS], others[FEW_SPEAKERS:]


def _likely_bots(rows: Sequence[Mapping[str, Any]], conversations: int) -> tuple[list[str], bool]:
    """Return the speakers who are probably bots, and whether that is certain: by name an agent, or by role an assistant.

    Else it is who has such a word in the name, such as "Support bot", or the one who speaks in most conversations, where the others
    speak in few.
    """
    bots = []
    for row in rows:
        is_assistant = {row["name"].casefold(), row["role"].casefold()} & BOT_NAMES
        if row["slug"] or row["why"] or is_assistant:
            bots.append(row["name"])
    if bots:
        return bots, True
    named_so = [row["name"] for row in rows if BOT_NAMES & set(re.findall(r"[^\W_]+", row["name"].casefold()))]
    if named_so:
        return named_so, False
    everywhere = [row["name"] for row in rows if 2 * row["conversations"] > conversations]
    if conversations > 1 and len(everywhere) == 1:
        return everywhere, False
    return [], False


def _which_agents(names: Sequence[str], options: ReadOptions, system_prompt: str) -> list[Question]:
    """Return for each of these speakers which agent it is."""
    if not names:
        return []
    agents = list(Agent.objects.listed().order_by("slug").values_list("slug", "display_name")[:MOST_AGENTS])
    offered = [Option(slug, f"{name} ({slug})") for slug, name in agents]
    offered.append(Option(NONE, "none of them: it cannot be measured"))
    questions = []
    for name in names:
        chosen = options.speaker_map.get(name)
        questions.append(
            Question(
                id=AGENT + name,
                text=f"Which agent is {name}?",
                name=name,
                options=offered,
                chosen=[_likely_agent(name, agents, system_prompt) if chosen is None else chosen],
                is_open=chosen is None,
                is_list=True,
            )
        )
    return questions


def _likely_agent(name: str, agents: Sequence[tuple[str, str]], system_prompt: str) -> str:
    """Return the slug of the agent with the nearest name, else of the one the system prompt names, else of the only one; empty = none."""
    slug_of: dict[str, str] = {}
    for slug, display_name in agents:
        slug_of[display_name.casefold()] = slug
        slug_of[slug.casefold()] = slug
    near = difflib.get_close_matches(name.casefold(), slug_of, n=1, cutoff=0.75)
    if near:
        return slug_of[near[0]]
    words = " ".join(re.findall(r"\w+", system_prompt.casefold()))
    mentioned = {slug for known_name, slug in slug_of.items() if f" {known_name} " in f" {words} "}
    if len(mentioned) == 1:
        return mentioned.pop()
    return agents[0][0] if len(agents) == 1 else NONE


# -- columns of a table
class _Table:
    """The columns of a CSV file, or the keys of JSON that has other keys than ours, and what is read of them; else without columns."""

    def __init__(self, contents: Mapping[str, Any], options: ReadOptions) -> None:
        header = [str(name) for name in contents.get("header", ())]
        self._is_read = bool(contents.get("messages"))
        self._columns: Mapping[str, Mapping[str, Any]] = contents.get("columns", {})
        self._asks: Mapping[str, Mapping[str, str]] = contents.get("asks", {})
        self._options = options
        self._columns_read: dict[str, str] = {}  # our field, or tags.KEY, to the column
        has_columns = contents.get("format", "csv") in ("csv", "jsonl")
        self._is_table = has_columns and len(header) > 1 and tuple(header) != MESSAGE_KEYS and bool(self._columns)
        if self._is_table:
            with suppress(OptionError):  # a column that is not among those shown
                for name, index in column_map(header, options.columns).items():
                    self._columns_read[name] = header[index]

    def needed_columns(self) -> list[Question]:
        """Return which columns hold texts, speakers and times, where their names do not say it. Nothing is read without the first two."""
        questions: list[Question] = []
        if not self._is_table:
            return questions
        read = self._columns_read
        chosen = self._options.columns
        if self._is_open("text") or "text" in chosen:
            longest = self._free("text")
            longest.sort(key=lambda name: self._columns[name]["length"], reverse=True)
            questions.append(self._column_question("text", "Which column holds the texts?", longest))
        if (self._is_open("speaker") and "role" not in read) or "speaker" in chosen:
            names = self._free("speaker")
            names.sort(key=self._unlike_a_speaker)
            questions.append(self._column_question("speaker", "Which column says who speaks?", names))
        times = [name for name in self._free("sent_at") if self._has_dates(name)]
        if times and ("sent_at" not in read or "sent_at" in chosen):
            questions.append(self._time_question(times))
        return questions

    def _has_dates(self, column: str) -> bool:
        examples = self._columns[column]["examples"]
        return bool(examples) and all(map(_is_date, examples))

    def _time_question(self, columns: Sequence[str]) -> Question:
        offered = [self._option(column) for column in columns[:MOST_COLUMNS]]
        offered.append(Option(NONE, "no column: their times are not known"))
        chosen = self._options.columns.get("sent_at")
        return Question(
            id=f"{COLUMN}sent_at",
            text="Which column says when a message was said?",
            name="Time",
            options=offered,
            chosen=[columns[0] if chosen is None else chosen],
            is_open=chosen is None,
            help="Drift over time is shown by it.",
        )

    def _is_open(self, name: str) -> bool:
        """Return whether nothing can be read because no column is known for a field."""
        return name not in self._columns_read and not self._is_read

    def _free(self, field: str) -> list[str]:
        """Return the columns that hold nothing else than the wanted field."""
        used = {column for name, column in self._columns_read.items() if name != field}
        return [name for name in self._columns if name not in used]

    def _column_question(self, name: str, text: str, columns: Sequence[str]) -> Question:
        column = self._columns_read.get(name)
        return Question(
            id=COLUMN + name,
            text=text,
            name=name.capitalize(),
            options=[self._option(column) for column in columns[:MOST_COLUMNS]],
            chosen=[column] if column else list(columns[:1]),
            is_open=self._is_open(name),
        )

    def _option(self, column: str) -> Option:
        values = self._columns.get(column, {})  # empty for one that is not among those shown
        return Option(column, column, values.get("examples", ()))

    def _unlike_a_speaker(self, column: str) -> tuple[bool, bool]:
        """Return a key by which columns whose values come again and begin with a letter are first."""
        examples = self._columns[column]["examples"]
        has_names = bool(examples) and all(example[:1].isalpha() for example in examples)
        return (not has_names, not self._columns[column]["repeats"])

    def questions(self, answers: Mapping[str, Any]) -> list[Question]:
        """Return which column holds the conversation, and which are tags."""
        if not self._is_table:
            return []
        used = {
            column for name, column in self._columns_read.items() if name != CHANNEL and not name.startswith("tags.")
        }
        free = [name for name, values in self._columns.items() if name not in used and values["repeats"]]
        questions = []
        guess = self._asks.get(CHANNEL, {}).get("answer", "")
        conversation = self._columns_read.get(CHANNEL) or guess
        if conversation and conversation not in free:
            free.insert(0, conversation)
        if free:
            questions.append(self._conversation_question(free, conversation, is_open=bool(guess)))
        free = [name for name in free if name != conversation and self._columns[name]["different"] <= MOST_TAG_VALUES]
        tags = [column for name, column in self._columns_read.items() if name.startswith("tags.")]
        free += [name for name in tags if name not in free]
        if free:
            questions.append(self._tags_question(free, tags, is_open=TAGS not in answers and bool(tags)))
        return questions

    def _conversation_question(self, columns: Sequence[str], conversation: str, *, is_open: bool) -> Question:
        first = [name for name in columns if name == conversation]
        others = [name for name in columns if name != conversation]
        offered = [self._option(name) for name in [*first, *others][:MOST_COLUMNS]]
        offered.append(Option(NONE, "no column: it is one conversation"))
        text = "Which column is the conversation?"
        if conversation:
            text = f"Is {conversation} the conversation?"
        return Question(
            id=CHANNEL,
            text=text,
            name="Conversation",
            options=offered,
            chosen=[conversation],
            is_open=is_open,
            help="Each value of the column becomes a conversation of its own.",
        )

    def _tags_question(self, columns: Sequence[str], tags: Sequence[str], *, is_open: bool) -> Question:
        first = [name for name in columns if name in tags]
        others = [name for name in columns if name not in tags]
        return Question(
            id=TAGS,
            text=f"Is {first[0]} a tag?" if len(first) == 1 else "Which columns are tags?",
            name="Tags",
            options=[self._option(name) for name in [*first, *others][:MOST_COLUMNS]],
            chosen=first,
            is_open=is_open,
            several=True,
            help="Each message keeps the values of its tags. Messages of two values can be compared, such as two builds.",
        )


# -- times
def _is_date(text: str) -> bool:
    """Return whether a text begins like a date and can be read as a time; 2.14.0 and 10.1.2.3 only begin like one."""
    if not DATE.match(text):
        return False
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


def _about_times(job: Import, options: ReadOptions) -> list[Question]:
    """Return whether the day comes before the month, and in which zone times without an offset are, where the file leaves that open."""
    questions = []
    guess = job.contents.get("asks", {}).get(DATES, {})
    if guess or options.dates:
        example = guess.get("example", "")
        questions.append(
            Question(
                id=DATES,
                text="Which comes first in dates, the day or the month?",
                name="Dates",
                options=[Option(DAY_FIRST, "the day"), Option(MONTH_FIRST, "the month")],
                chosen=[options.dates or guess["answer"]],
                is_open=not options.dates,
                help=f"In the file: {example}" if example else "",
            )
        )
    if job.contents.get("without_zone"):
        questions.append(_zone_question(job.contents, options))
    return questions


def _zone_question(contents: Mapping[str, Any], options: ReadOptions) -> Question:
    default = timezone.get_default_timezone_name()
    first = datetime.fromisoformat(contents["first_without_zone"])
    zones = [Option(default, f"{default} (of this server)")]
    zones += [Option(name, name) for name in sorted(available_timezones()) if name != default]
    return Question(
        id=TIME_ZONE,
        text="In which time zone are the times?",
        name="Time zone",
        options=zones,
        chosen=[options.time_zone or default],
        is_open=not options.time_zone,
        is_list=True,
        help=f"They do not say it, for example {time_text(first)}.",
    )
