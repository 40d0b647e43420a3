"""Plays replies of the scripted model through a proxy, and counts what reached the client."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.model_server import ModelServer, StreamedReply, sentences
from tests.gateway.planted import MARK, PlantedReply
from tests.gateway.product import PERSONA
from tests.gateway.proxy import Proxy

_numbers = itertools.count(1)


@dataclass
class Played:
    """What came of some replies.

    Attributes:
        replies, planted: How many there were.
        leaked: Replies of which a planted sentence, or its beginning up to the mark, reached the client.
        shortened: Replies of which clean words before a planted sentence were written again with it.
        wrong: Further replies that are not what they may be.
        errors: What the client was told where a reply broke.
        first_words: Seconds to the first words, of each reply.
        whole: Seconds to the end, of each reply.
        late: Seconds between the moment at which the model had sent its first sentence and that at which the client had it, of each
            reply that nothing was planted in.
        behind: The most complete sentences that the model had sent and the client had not received, of each reply that nothing was
            planted in.
        examples: Some of those that are wrong: what was said, what was received.
    """

    replies: int = 0
    planted: int = 0
    leaked: int = 0
    shortened: int = 0
    wrong: int = 0
    errors: list[str] = field(default_factory=list)
    first_words: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)
    examples: list[tuple[str, str]] = field(default_factory=list)

    def summary(self) -> str:
        counts = f"{self.replies} replies, {self.planted} planted, {self.leaked} leaked, {self.wrong} wrong"
        counts += f", {self.shortened} shortened, {len(self.errors)} errors"
        times = f"first words {_spread(self.first_words)}, whole {_spread(self.whole)}"
        late = f"first sentence late by {_spread(self.late)}"
        behind = f"behind: median {statistics.median(self.behind):g}, most {max(self.behind)}" if self.behind else ""
        return f"{counts}; {times}; {late}; {behind}"


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
    return f"{statistics.median(ordered) * 1000:.0f} ms (95 % within {late * 1000:.0f})"


def play(
    proxy: Proxy,
    model: ModelServer,
    replies: Sequence[PlantedReply],
    chunking: Callable[[str], list[str]],
    *,
    pause: float = 0.0,
    at_once: int = 4,
    stream: bool = True,
    timeout: float = 600,
) -> Played:
    """Let the model say the replies, each in a conversation of its own.

    Args:
        pause: Seconds between two pieces of the model.
        at_once: How many conversations go on side by side.
        stream: Whether the client asks for a stream.
        timeout: Seconds for all.
    """
    questions = []
    for reply in replies:
        question = f"Question {next(_numbers)}?"
        model.replies[question] = StreamedReply(texts=[chunking(reply.text)], pause=pause)
        questions.append(question)
    seen = proxy.ask([asking(question, stream=stream) for question in questions], at_once=at_once, timeout=timeout)
    played = Played()
    for question, reply, received in zip(questions, replies, seen, strict=True):
        _count(played, reply, received, model.continuation)
        if stream and not reply.planted and not received["error"]:
            played.behind.append(_most_behind(reply.text, model.sent[question], received))
            played.late.append(_first_sentence_late(reply.text, model.sent[question], received))
    return played


def asking(question: str, **fields: Any) -> dict[str, Any]:
    """Return a request for a reply to this question."""
    messages = [{"role": "system", "content": PERSONA}, {"role": "user", "content": question}]
    return {"model": "angela", "messages": messages, **fields}


def _count(played: Played, reply: PlantedReply, received: dict[str, Any], continuation: str) -> None:
    text = received["texts"].get("0", "")
    played.replies += 1
    played.planted += reply.planted
    if received["error"]:
        played.errors.append(received["error"])
    elif MARK in text:
        played.leaked += 1
        played.examples.append((reply.text, text))
    elif reply.is_right(text, continuation):
        pass
    elif reply.is_shortened(text, continuation):
        played.shortened += 1
    else:
        played.wrong += 1
        played.examples.append((reply.text, text))
    if received["pieces"]:
        played.first_words.append(received["pieces"][0][0])
        played.whole.append(received["seconds"])


def _most_behind(text: str, sent: Sequence[tuple[float, int]], received: dict[str, Any]) -> int:
    """Return the most complete sentences that had been sent and not received, at the moments just before words were received."""
    ends = _ends_of_sentences(text)
    most = length = 0
    for seconds, _, piece in received["pieces"]:
        moment = received["begun"] + seconds
        sent_length = max((count for time, count in sent if time <= moment), default=0)
        most = max(most, _complete(ends, sent_length) - _complete(ends, length))
        length += len(piece)
    return most


def _first_sentence_late(text: str, sent: Sequence[tuple[float, int]], received: dict[str, Any]) -> float:
    """Return the seconds between the moments at which the first sentence had been sent and had been received."""
    end = _ends_of_sentences(text)[0]
    sent_at = next(time for time, length in sent if length >= end)
    length = 0
    for seconds, _, piece in received["pieces"]:
        length += len(piece)
        if length >= end:
            return float(received["begun"] + seconds - sent_at)
    raise ValueError("the first sentence was not received")


def _ends_of_sentences(text: str) -> list[int]:
    """Return after how many characters each sentence is complete, the space behind it not counted."""
    ends = []
    length = 0
    for sentence in sentences(text):
        ends.append(length + len(sentence.rstrip()))
        length += len(sentence)
    return ends


def _complete(ends: Sequence[int], length: int) -> int:
    return sum(end <= length for end in ends)
