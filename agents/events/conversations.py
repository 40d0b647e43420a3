"""What is said in a channel, and the steps of a turn."""

from __future__ import annotations

from collections.abc import Sequence

from agents.api.message_rows import shown_messages
from agents.events.feeds import Gone, Log
from agents.models import Channel, Message, Run, RunStep


class Conversation(Log):
    """The messages of a channel, by position.

    A position is taken under the lock of the channel's row and kept until the message is committed (`agents.turn.send_message`,
    `agents.transcripts.store`): what is committed later has a higher one, so nothing appears below what was seen.
    """

    def __init__(self, channel: int) -> None:
        self.channel = channel

    def head(self) -> int:
        following: int | None = Channel.objects.filter(pk=self.channel).values_list("next_position", flat=True).first()
        if following is None:
            raise Gone
        return following - 1

    def after(self, number: int, most: int) -> Sequence[tuple[int, Message]]:
        rows = shown_messages().filter(channel_id=self.channel, position__gt=number).order_by("position")[:most]
        return [(row.position, row) for row in rows]


class Turn(Log):
    """The steps of a turn, which one worker writes; over when the turn is."""

    kind = "step"

    def __init__(self, run: int) -> None:
        self.run = run

    def head(self) -> int:
        return RunStep.objects.filter(run=self.run).order_by("-number").values_list("number", flat=True).first() or 0

    def after(self, number: int, most: int) -> Sequence[tuple[int, RunStep]]:
        rows = RunStep.objects.filter(run=self.run, number__gt=number).order_by("number")[:most]
        return [(row.number, row) for row in rows]

    def final(self) -> Run | None:
        run = Run.objects.select_related("agent", "channel").defer("trace", "overrides").filter(pk=self.run).first()
        if run is None:
            raise Gone
        return run if run.status in Run.FINAL else None

    def start(self) -> str:
        return "0"  # a turn is short: who comes late is told all of it
