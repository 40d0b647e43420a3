"""The cast for a terminal: who went flat, and in what, the flattest first."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on
from evaluation.cast.cards import Cast
from evaluation.cast.sentences import sentence_of, tag_words
from evaluation.cast.values import Card, DimensionMove
from evaluation.runs.coverage import percent
from evaluation.runs.terminal import judge_label
from evaluation.wording import decimal

COLOURS = {"fell": "red", "not enough data": "yellow", "maybe": "yellow", "rose": "green"}


def cast_table(found: Cast, out: Any) -> None:
    """One row per agent: its dimensions then and now, and the sentence of its card."""
    cards = found.cards
    judged = next((card.judged for card in cards if card.judged is not None), None)
    tags = {_tags(card) for card in cards if card.sides.now}
    of = f" ({tags.pop()})" if len(tags) == 1 and "" not in tags else ""
    title = f"Then and now{of} by {judge_label(judged.judge)}" if judged else "Then and now"
    dimensions = sorted({move.dimension for card in cards for move in card.dimensions})
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    table.add_column("Agent", no_wrap=True)
    for dimension in dimensions:
        table.add_column(dimension.capitalize().replace("_", " "), justify="right", no_wrap=True)
    table.add_column("What changed")
    for card in cards:
        by_name = {move.dimension: move for move in card.dimensions}
        scores = [_scores(by_name.get(dimension)) for dimension in dimensions]
        named = f"{card.agent.slug} ({_tags(card)})" if len(tags) > 1 and _tags(card) else card.agent.slug
        table.add_row(escape(named), *scores, _sentence(card))
    console = console_on(out)
    console.print(table)
    console.print("In %: the share of judgements scored, of the propositions this judge can score at all.")


def _tags(card: Card) -> str:
    """What the messages of the second measurement are tagged with."""
    return "; ".join(sorted({tag_words(run) for run in card.sides.now.values()} - {""}))


def _scores(move: DimensionMove | None) -> str:
    if move is None:
        return "–"
    scores = " → ".join("–" if score is None else decimal(score) for score in (move.then, move.now))
    shares = " → ".join(percent(share) or "–" for share in (move.then_share, move.now_share))
    return f"{scores}\n[dim]{shares.replace(' %', '', 1) if shares.count('%') > 1 else shares}[/dim]"


def _sentence(card: Card) -> str:
    colour = COLOURS.get(card.state, "")
    text = escape(sentence_of(card))
    return f"[{colour}]{text}[/{colour}]" if colour else text
