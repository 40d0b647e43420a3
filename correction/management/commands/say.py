"""``manage.py say``: pass a given draft through review and commit, as an agent's own would be."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents.finding import UnknownAgent, find_agent
from agents.models import Channel
from agents.turn.send_message import SendRefused, send_message
from agents.turn.values import SendResult
from correction.gate_session import check_session
from correction.say_output import as_json, write_result

REJECTED, BAD_INPUT = 1, 2


class Command(BaseCommand):
    help = (
        "Say TEXT as AGENT in CHANNEL: the draft passes the review stages and is committed, or is sent back with feedback. "
        "Exit code 0 when it was said, 1 when it was sent back, 2 when it cannot be said."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agent", help="slug or name of the agent")
        parser.add_argument("channel", help="slug of the channel; the agent must be a member")
        parser.add_argument("text", help="the draft; - reads it from standard input")
        parser.add_argument(
            "--session", default="", metavar="ID", help="next attempt at the message that was sent back under this id"
        )
        parser.add_argument(
            "--key", default="", help="idempotency key: the same key never commits twice and is not judged twice"
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object on standard output and nothing else"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            agent = find_agent(options["agent"])
        except UnknownAgent as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from None
        channel = self._channel(options["channel"])
        try:
            text = sys.stdin.read().removesuffix("\n") if options["text"] == "-" else options["text"]
            if options["session"]:
                check_session(session=options["session"], agent=agent, channel=channel)
            result = send_message(
                agent=agent,
                channel=channel,
                text=text,
                session=options["session"],
                idempotency_key=options["key"],
            )
        except UnicodeDecodeError as error:
            raise CommandError(f"the text on standard input is not UTF-8: {error}", returncode=BAD_INPUT) from None
        except (SendRefused, ValueError) as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from None
        self._show(result, options)
        if not result.committed:
            sys.exit(REJECTED)

    def _channel(self, slug: str) -> Channel:
        row = Channel.objects.filter(slug=slug.removeprefix("#")).first()
        if row is None:
            known = list(Channel.objects.order_by("slug").values_list("slug", flat=True)[:40])
            shown = ", ".join(known) or "none yet (`manage.py seed` loads examples)"
            raise CommandError(f"there is no channel {slug!r}; known: {shown}", returncode=BAD_INPUT)
        return row

    def _show(self, result: SendResult, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(as_json(result), ensure_ascii=False))
        else:
            write_result(result, agent=options["agent"], channel=options["channel"], out=self.stdout)
