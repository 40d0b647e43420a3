"""How much of a long conversation an agent's memory keeps in its prompt: the share of questions whose evidence stands there.

Each question is put to the agent as the next message. Beside its prompt, with as many characters: the last messages alone; the last
messages and random older ones; and the last messages and those older ones that share most words with the question.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agents.kit.llm.requests import CHARACTERS_PER_TOKEN
from agents.kit.models import owner_name
from agents.kit.text.voices import vocabulary
from agents.models import Agent, Channel, Message
from agents.swarm import memory, summaries
from agents.swarm.calibration import by_rules
from agents.swarm.models import DialogState, DialogSummary
from agents.swarm.state import KINDS, add_answer, add_quoted, advance, updating
from agents.turn.pipeline import TraceEntry
from agents.turn.prompt import lines, new_turn
from tests.factories import make_agent, make_channel, say

EXAMPLE = Path(__file__).with_suffix(".json")
OURS, LAST = "this memory", "the last messages alone"
RANDOM = "the window and random older messages"
NEAREST = "the window and older messages that share words with the question"
DRAWS = 50  # of random older messages
RESAMPLES = 2_000
HELD = 0.5  # share of a message's content words that have to stand in the prompt
QUOTE = re.compile(r"\u201c([^\u201c\u201d]*)\u201d \([^()]*, (\d+)\)")
Shown = dict[int, str]  # position to what of the message is shown


@dataclass(frozen=True)
class Question:
    """One question, and the positions of the messages that answer it."""

    text: str
    evidence: tuple[int, ...]


@dataclass
class Measured:
    """For each way to fill a prompt one number a question, 0 or 1; of random messages the mean of draws."""

    ways: dict[str, list[float]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    unknown: int = 0


def measure_memory(source: Path) -> None:
    """Print the shares for a file in LoCoMo's form."""
    samples = json.loads(source.read_text())
    _print(source, measured(samples if isinstance(samples, list) else [samples]))


def measured(samples: Sequence[dict[str, Any]]) -> Measured:
    """Say the conversations, and look which questions have their evidence in the prompt."""
    result = Measured()
    for number, sample in enumerate(samples):
        agent, channel, questions, unknown = _read(sample, number)
        result.unknown += unknown
        prompts = {question: _ours(agent, channel, question) for question in questions}
        lengths = [characters for _, characters in prompts.values()]
        characters = sum(lengths) // max(1, len(lengths))
        result.tokens.append(characters // CHARACTERS_PER_TOKEN)
        messages = list(Message.objects.filter(channel=channel).select_related("agent", "user").order_by("position"))
        shown = {question: held for question, (held, _) in prompts.items()}
        for way, answers in _compared(agent, messages, questions, shown, characters):
            result.ways.setdefault(way, []).extend(answers)
    return result


# -- reading
def _read(sample: dict[str, Any], number: int) -> tuple[Agent, Channel, list[Question], int]:
    """Say the conversation, the second speaker as the agent, with the turns and summaries that this brings."""
    conversation = sample.get("conversation", sample)
    sessions = [name for name in conversation if re.fullmatch(r"session_\d+", name)]
    said = [one for name in sorted(sessions, key=lambda name: int(name[8:])) for one in conversation[name]]
    speakers = list(dict.fromkeys(one["speaker"] for one in said))
    name = conversation.get("speaker_b", speakers[-1])
    agent = make_agent(f"memory-{number}", display_name=name)
    channel, places = make_channel(f"memory-{number}"), dict[str, int]()
    for one in said:
        message = say(channel, agent if one["speaker"] == name else one["speaker"], one["text"] or "…")
        places[one["dia_id"]] = message.position
        if message.agent_id is None:
            _take_in(agent, channel, message)
    questions, unknown = [], 0
    for one in sample["qa"]:
        wanted = re.findall(r"D\d+:\d+", " ".join(map(str, one.get("evidence", []))))
        known = tuple(places[place] for place in wanted if place in places)
        if known and len(known) == len(wanted):
            questions.append(Question(one["question"], known))
        else:
            unknown += 1
    return agent, channel, questions, unknown


def _take_in(agent: Agent, channel: Channel, message: Message) -> None:
    """What a turn does to state and summaries, by rules."""
    transcript = new_turn(agent=agent, channel=channel).transcript
    with updating(agent, channel) as state:
        reading = by_rules(trigger=message, transcript=transcript, state=state)
        if advance(state, message):
            add_answer(state, message, transcript[-2] if len(transcript) > 1 else None)
            for kind in KINDS:
                if new := getattr(reading, kind, None):
                    add_quoted(state, kind, new, transcript)
            summaries.queue_summary(state)
    while summaries.work_one(owner=owner_name()):
        pass


# -- what is shown
def _ours(agent: Agent, channel: Channel, question: Question) -> tuple[Shown, int]:
    """What the agent's prompt shows of the conversation when the question is asked, and how many characters that takes."""
    turn = new_turn(agent=agent, channel=channel)
    turn.running.append(TraceEntry("swarm", "prepare"))
    asked = Message(channel=channel, text=question.text)
    memory.remember(turn, DialogState.objects.get(agent=agent, channel=channel), {}, message=asked)
    section = "".join(section.body for section in turn.sections)
    shown: Shown = {}
    for quote, position in QUOTE.findall(section):
        shown[int(position)] = f"{shown.get(int(position), '')} {quote}"
    shown |= {message.position: message.text for message in turn.transcript}
    return shown, len(section) + sum(map(len, lines(turn.transcript, agent=agent)))


def _filled(agent: Agent, order: Sequence[Message], characters: int) -> Shown:
    """Messages in this order while there is room."""
    shown: Shown = {}
    for message in order:
        characters -= len(lines([message], agent=agent)[-1]) + 1
        if characters < 0:
            break
        shown[message.position] = message.text
    return shown


def _compared(
    agent: Agent,
    messages: Sequence[Message],
    questions: Sequence[Question],
    ours: Mapping[Question, Shown],
    characters: int,
) -> Iterator[tuple[str, list[float]]]:
    texts = {message.position: message.text for message in messages}
    recent = memory.window(messages)[::-1]
    older = [message for message in messages if message.position < recent[-1].position]

    def share(shown_for: Callable[[Question], Shown]) -> list[float]:
        return [float(_holds(shown_for(question), question, texts)) for question in questions]

    yield OURS, share(ours.__getitem__)
    last = _filled(agent, messages[::-1], characters)
    yield LAST, share(lambda _: last)
    chance = random.Random(5)
    draws = [
        share(lambda _, shown=shown: shown)  # type: ignore[misc]
        for shown in (_filled(agent, [*recent, *chance.sample(older, len(older))], characters) for _ in range(DRAWS))
    ]
    yield RANDOM, [sum(one) / DRAWS for one in zip(*draws, strict=True)]

    def nearest(question: Question) -> Shown:
        words = vocabulary([question.text])
        order = sorted(older, key=lambda message: len(words & vocabulary([message.text])), reverse=True)
        return _filled(agent, [*recent, *order], characters)

    yield NEAREST, share(nearest)


def _holds(shown: Shown, question: Question, texts: dict[int, str]) -> bool:
    """Whether of each message that answers the question at least half of the content words are shown."""
    return all(_share(shown.get(position, ""), texts[position]) >= HELD for position in question.evidence)


def _share(shown: str, text: str) -> float:
    words = vocabulary([text])
    return len(words & vocabulary([shown])) / len(words) if words else float(bool(shown))


def _print(source: Path, result: Measured) -> None:
    ours, tokens = result.ways[OURS], result.tokens
    table = Table(title=f"Questions whose evidence is in the prompt: {source.name}", title_justify="left")
    for heading in ("What the prompt holds", "Share (95 % interval)", "This memory holds more by (95 % interval)"):
        table.add_column(heading, justify="left")
    for way, answers in result.ways.items():
        more = _interval([a - b for a, b in zip(ours, answers, strict=True)], "+.1%") if answers is not ours else "-"
        table.add_row(way, _interval(answers, ".1%"), more)
    console = Console(width=150)
    console.print(table)
    console.print(
        f"{len(ours)} questions ({result.unknown} without known evidence left out), {len(tokens)} conversations, about "
        f"{sum(tokens) // len(tokens):,} tokens each. Evidence counts where at least half of its content words stand in the prompt. "
        f"Summaries by {'rules' if DialogSummary.objects.filter(heuristic=True).exists() else 'a model'}."
    )


def _interval(values: Sequence[float], form: str) -> str:
    """The mean over questions with its bootstrap interval."""
    chance, count = random.Random(5), len(values)
    means = sorted(sum(chance.choices(values, k=count)) / count for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
    return f"{sum(values) / count:{form}} ({low:{form}} to {high:{form}})"
