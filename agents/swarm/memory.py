"""Put what an agent remembers of a conversation into its prompt: the last messages in full, what is pinned, older messages that share
words with the new one, and the others in a summary (`agents.swarm.summaries`).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.conf import settings
from django.db.models import Q, QuerySet
from django.db.models.functions import Left

from agents.kit.text.fences import fence, render_prompt
from agents.kit.text.tokens import tokenize
from agents.kit.text.voices import STOP_WORDS, stem
from agents.models import Message
from agents.swarm.calibration import PREFERENCES
from agents.swarm.models import DialogEntry, DialogState, DialogSummary
from agents.swarm.state import (
    MOST_CHARACTERS,
    QuoteKey,
    all_entries,
    entries,
    folded,
    key_of,
    pinned,
    words_to_forget,
)
from agents.swarm.summaries import (
    PART_OF_KIND,
    as_quote,
    compose,
    fitting,
    messages_of,
    newest_summary,
    on_one_line,
    quotes_of,
    without_removed,
)
from agents.turn.pipeline import Overrides, Turn

MEMORY_CHARACTERS = 3_200  # of all that is remembered in a prompt; the more is pinned, the less is shown of the rest
LEAST_SHOWN = 600  # characters of a summary, and of recalled messages, at least
MOST_RECALLED = 8  # messages that share words with the new one
RECALLED_CHARACTERS = 300  # of each of them
MOST_SEARCHED = 2_000  # newest messages before the window that are searched
SEARCHED_CHARACTERS = 1_000  # of each of them
MOST_SINCE = 10  # messages that no summary covers yet
SINCE_CHARACTERS = 480  # of all of them together

# Found quickly, before `words_to_forget`.
_MAY_ASK_TO_FORGET = re.compile(r"(?i)\b(?:forget|disregard|ignore|scratch)\b")


@dataclass(frozen=True, slots=True)
class OlderMessages:
    """Messages before the window that are quoted in a prompt.

    Attributes:
        unsummarised: Those that no summary covers yet, oldest first; one more than are shown where there are more.
        recalled: Those that share words with the message to be answered, best first.
    """

    unsummarised: Sequence[Message] = field(default_factory=list)
    recalled: Sequence[Message] = field(default_factory=list)


def window(transcript: Sequence[Message]) -> list[Message]:
    """Return the messages that the agent is shown in full: the last ones; of a longer thread its first one takes the oldest one's place."""
    messages = list(transcript[-settings.SWARM_WINDOW :])
    is_longer = len(messages) < len(transcript)
    if is_longer and messages[-1].parent_id == transcript[0].pk:
        messages[0] = transcript[0]
    return messages


def remember(turn: Turn, state: DialogState, preferences: Mapping[str, str], *, message: Message | None) -> None:
    """Shorten the turn's transcript to the window, and add the section about what was before it, where there is anything.

    Messages of which a person removed a part, and those that say what their speaker later asked to forget, are quoted no more.

    Args:
        preferences: Of the person, name to value.
        message: The one to be answered. Older messages that share words with it are recalled; None: none are.
    """
    summary = newest_summary(turn.agent, turn.channel)
    whole_transcript = turn.transcript
    turn.transcript = window(whole_transcript)
    older = OlderMessages()
    if turn.transcript:
        has_first_of_thread = len(turn.transcript) < len(whole_transcript) and turn.transcript[0] is whole_transcript[0]
        window_from = turn.transcript[1 if has_first_of_thread else 0].position
        older = _older_messages(turn, state, summary, message, window_from=window_from)
    text = memory_section(state, summary, preferences, turn.nonce, between=older.unsummarised, recalled=older.recalled)
    if text:
        turn.add_section("This conversation so far", text)
    turn.count(
        pinned=len(pinned(state)),
        shown_in_full=len(turn.transcript),
        summarised=int(summary is not None),
        recalled=len(older.recalled),
    )


def _older_messages(
    turn: Turn, state: DialogState, summary: DialogSummary | None, message: Message | None, *, window_from: int
) -> OlderMessages:
    """Return the messages before the window that are to be quoted: the newest that no summary covers, and those like `message`.

    Args:
        turn: With its transcript cut to the window.
        summary: The newest one; None: no message is covered.
        message: None: none is recalled.
        window_from: Position of the first message of the window, but for that of a thread.
    """
    before_window = messages_of(turn.channel).filter(position__lt=window_from).exclude(pk=turn.transcript[0].pk)
    if Overrides.of(turn.overrides).apart:  # the agent is not shown what other agents say
        before_window = before_window.filter(Q(agent=turn.agent) | Q(agent=None))
    words_of = searched(before_window, newer=turn.transcript)
    for entry in all_entries(state):
        if entry.removed:
            words_of.pop(entry.position, None)
    summarised_to = summary.to_position if summary else 0
    # Newest first; one more than is shown tells that there are more.
    unsummarised = [position for position in words_of if position > summarised_to][: MOST_SINCE + 1]
    nearest = recalled(message.text, words_of) if message is not None else []
    rows = {row.position: row for row in before_window.filter(position__in=[*unsummarised, *nearest])}
    return OlderMessages(
        unsummarised=[rows[position] for position in reversed(unsummarised) if position in rows],
        recalled=[rows[position] for position in nearest if position in rows],
    )


def searched(older: QuerySet[Message], *, newer: Iterable[Message] = ()) -> dict[int, frozenset[str]]:
    """Return position to telling words of the newest messages, newest first, without what people asked to forget.

    A message is left out when it holds all telling words of something that the same person asks to forget in it or after it.
    Messages of agents are never left out.

    Args:
        older: The messages to read; of each only the beginning.
        newer: Messages after these, which are not returned but may ask to forget.
    """
    forgotten_by: defaultdict[tuple[int | None, str], list[frozenset[str]]] = defaultdict(list)
    for message in newer:
        if message.agent_id is None:
            forgotten_by[message.user_id, message.outsider] += words_to_forget(message.text)
    # From new to old: what a message asks to forget concerns itself and those before it.
    columns = ("position", "agent_id", "user_id", "outsider", Left("text", SEARCHED_CHARACTERS))
    rows = older.order_by("-position").values_list(*columns)[:MOST_SEARCHED]
    words_of: dict[int, frozenset[str]] = {}
    for position, agent, user, outsider, text in rows:
        words_of[position] = _telling_words(text)
        if agent is not None:
            continue
        forgotten = forgotten_by[user, outsider]
        if _MAY_ASK_TO_FORGET.search(text):
            forgotten += words_to_forget(text)
        if any(words <= words_of[position] for words in forgotten):
            del words_of[position]
    return words_of


def recalled(text: str, words_of: Mapping[int, frozenset[str]]) -> list[int]:
    """Return the positions of at most `MOST_RECALLED` messages that share most words with a text, best first; none that shares no word.

    A shared word counts the more, the fewer of the messages hold it. Of equal messages the newer comes first.

    Args:
        words_of: Position to telling words of each message.
    """
    telling_words = _telling_words(text)
    holders = Counter[str]()
    for words in words_of.values():
        holders.update(telling_words & words)
    worth = {word: math.log(1 + len(words_of) / count) for word, count in holders.items()}
    scores: dict[int, float] = {}
    for position, words in words_of.items():
        shared = telling_words & words
        if shared:
            scores[position] = math.fsum(worth[word] for word in shared)
    best_first = sorted(scores, key=lambda position: (scores[position], position), reverse=True)
    return best_first[:MOST_RECALLED]


def _telling_words(text: str) -> frozenset[str]:
    """Return the words of a text by their stems, without stop words, and its numbers."""
    return frozenset(stem(word) for word in tokenize(text) if word not in STOP_WORDS)


# -- the section of the prompt
def memory_section(
    state: DialogState,
    summary: DialogSummary | None,
    preferences: Mapping[str, str],
    nonce: str,
    *,
    between: Sequence[Message] = (),
    recalled: Sequence[Message] = (),
) -> str:
    """Render what the agent remembers; empty when there is nothing.

    Entries come first, then recalled messages, the summary, and the messages since. What is shown takes room from what comes after it,
    but recalled messages and the summary may have at least `LEAST_SHOWN` characters each.

    Args:
        state: Its anchor, goal and entries are shown with the words they rest on.
        summary: The newest one. What the state shows already is left out of it.
        preferences: Of the person; unknown names and values are left out.
        nonce: Of the turn's fences.
        between: Messages before the window that the summary does not cover, oldest first; the last ones are shown by their beginning,
            but those that are recalled.
        recalled: Older messages that share words with the new one, best first; as many are shown as there is room for.
    """
    lines: list[str] = []
    shown_keys: set[QuoteKey] = set()
    for heading, shown_entries in _entries_to_show(state).items():
        if shown_entries:
            lines.append(f"{heading}:")
            lines += [f"- {_entry_line(entry)}" for entry in shown_entries]
            shown_keys.update(key_of(entry.position, entry.quote) for entry in shown_entries)
    room = MEMORY_CHARACTERS - SINCE_CHARACTERS - sum(map(len, lines))

    room_beside_summary = max(room - LEAST_SHOWN, LEAST_SHOWN)
    quotes = _recalled_quotes(recalled, room=room_beside_summary)
    if quotes:
        lines.append("Earlier messages that share words with the last one:")
        # The best were chosen; they are shown oldest first.
        lines += [f"- {quotes[position]}" for position in sorted(quotes)]
        room -= sum(map(len, quotes.values()))

    if summary is not None:
        text = _summary_text(summary, state, without=shown_keys, recalled=quotes, room=max(room, LEAST_SHOWN))
        if text:
            lines += [f"Summary of messages {summary.from_position} to {summary.to_position}:", text]

    since = _since_lines(between, recalled=quotes)
    if since:
        lines.append("Since then, each message by its beginning:")
        lines += [f"- {line}" for line in since]

    wishes = [(name, value) for name, value in sorted(preferences.items()) if value in PREFERENCES.get(name, ())]
    if not lines and not wishes:
        return ""
    memory = fence("REMEMBERED", "\n".join(lines), nonce) if lines else ""
    return render_prompt("swarm/memory", memory=memory, wishes=wishes)


def _entries_to_show(state: DialogState) -> dict[str, list[DialogEntry]]:
    """Return heading to entries: anchor, goal and all that are pinned, and of the others the newest within a limit.

    The others get half of the room that these and the least for summary and recalled messages leave. One that is too long is left out,
    and with it all older ones.
    """
    always = {
        "What it is about": entries(state, "anchor"),
        "What the person wants now": entries(state, "goal"),
        "Pinned": pinned(state),
    }
    characters = 0
    for shown_entries in always.values():
        characters += sum(len(_entry_line(entry)) for entry in shown_entries)
    room = (MEMORY_CHARACTERS - SINCE_CHARACTERS - 2 * LEAST_SHOWN - characters) // 2
    others = [entry for entry in entries(state, *PART_OF_KIND) if not entry.pinned and not entry.leaving]
    newest: dict[str, list[DialogEntry]] = {kind.capitalize(): [] for kind in PART_OF_KIND}
    for entry in sorted(others, key=lambda entry: entry.position, reverse=True):
        room -= len(_entry_line(entry))
        if room >= 0:
            newest[entry.kind.capitalize()].insert(0, entry)
    return always | newest


def _entry_line(entry: DialogEntry) -> str:
    """Return an entry with the words it rests on; where a person worded it or it is an answer, with that text before them.

    For example ``“I am vegan” (Ann, 3)``, ``No meat: “I am vegan” (Ann, 3)``, ``Where to? “Rome” (Ann, 5)``.
    """
    quote = as_quote(entry.quote, entry.author, entry.position)
    if folded(entry.text) in folded(entry.quote):
        return quote
    is_answer = entry.text.endswith(f"? {entry.quote}")
    if is_answer:
        question = entry.text.removesuffix(entry.quote)
        return f"{on_one_line(question, MOST_CHARACTERS)} {quote}"
    return f"{on_one_line(entry.text, MOST_CHARACTERS)}: {quote}"


def _recalled_quotes(messages: Iterable[Message], *, room: int) -> dict[int, str]:
    """Return position to quote of the first messages for which there is room; the first that does not fit ends it."""
    quotes: dict[int, str] = {}
    for message in messages:
        quote = as_quote(message.text, message.author_name, message.position, limit=RECALLED_CHARACTERS)
        room -= len(quote)
        if room < 0:
            break
        quotes[message.position] = quote
    return quotes


def _summary_text(
    summary: DialogSummary, state: DialogState, *, without: set[QuoteKey], recalled: Mapping[int, str], room: int
) -> str:
    """Return as much of a summary as there is room for, without the quotes and messages that are shown already."""
    quotes = without_removed(quotes_of(summary), state)
    rest = [quote for quote in quotes if quote.key not in without and quote.position not in recalled]
    return compose(fitting(rest, set(), room=room))


def _since_lines(between: Sequence[Message], *, recalled: Mapping[int, str]) -> list[str]:
    """Return the beginnings of the last messages that no summary covers, and a note where there are more of them.

    Those that are recalled are left out, as they are quoted already; the others share `SINCE_CHARACTERS` equally.
    """
    latest = [message for message in between[-MOST_SINCE:] if message.position not in recalled]
    characters = SINCE_CHARACTERS // max(1, len(latest))
    lines: list[str] = []
    if len(between) > MOST_SINCE:
        lines.append("[… earlier messages that are not summarised yet …]")
    for message in latest:
        limit = characters - 16  # room for quotation marks, author and position
        lines.append(as_quote(message.text, message.author_name, message.position, limit=limit))
    return lines
