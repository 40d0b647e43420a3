"""``manage.py chat``: talk to an agent in the terminal, and see what its stages report of each message."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentry_sdk
from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from agents.chat import Exchange, begin_chat, exchange
from agents.kit.capability import declared_list
from agents.kit.commands import FAILED, STOPPED, BaseCommand, in_line, printable, unanswered, unusable, wrong
from agents.kit.running import stopping_on_sigterm
from agents.models import Agent, Channel, Run
from agents.models.conversations import UnknownAgent, find_agent
from agents.turn.send_message import SendRefused, TurnRefused

LONGEST_LINE = 2_000  # characters of a line of a trace


class Command(BaseCommand):
    help = """Talk to an agent: each line you write is a message, and its reply is printed. Ctrl-D ends the conversation.

It takes place in a direct message of its own, marked synthetic: nothing that is said there enters a measurement. Offline the agent says
its sample lines, and its swarm, if it has one, reads and polishes by rules.

  manage.py chat michael                          a new conversation
  manage.py chat michael --trace                  with what the swarm did: intent, calibration, clarifier, tools, polish, milliseconds
  manage.py chat michael --script messages.txt    a message per line; empty lines and those that begin with # are left out
  manage.py chat michael --channel chat-michael-1 go on with an earlier conversation

Exit code: 0 all was answered, 1 a turn failed."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.add_argument("agent", help="slug of the agent")
        parser.add_argument(
            "--trace", action="store_true", help="after each reply, what the swarm did with the message"
        )
        parser.add_argument("--script", metavar="FILE", help="read the messages from a file; - is standard input")
        parser.add_argument("--channel", metavar="SLUG", help="of an earlier conversation, to go on with it")
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object and nothing else; needs --script"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Answer each message in this process and print the replies; with --json print one object when all are answered.

        A turn that failed does not end the conversation: the first such turn is the error of the command when it is over.
        """
        if options["json"] and options["script"] is None:
            raise wrong("--json: allowed with --script FILE (or -)")
        try:
            agent = find_agent(options["agent"])
        except UnknownAgent as error:
            raise unusable(error) from None
        messages = self._lines_typed(agent) if options["script"] is None else iter(_messages_of(options["script"]))
        channel = self._channel(agent, options["channel"])
        if options["trace"] and not options["json"]:
            self._say_why_untraced(agent)
        exchanges: list[Exchange] = []
        try:
            with stopping_on_sigterm():
                for text in messages:
                    with sentry_sdk.start_transaction(op="agents.command", name="chat"):
                        exchanges.append(exchange(agent, channel, text))
                    if not options["json"]:
                        is_echoed = options["script"] is not None  # what a person types stands in the terminal already
                        self._show(agent, exchanges[-1], trace=options["trace"], echo=is_echoed)
        except (SendRefused, TurnRefused) as error:
            raise unusable(error) from None
        except KeyboardInterrupt:
            advice = f"go on with: manage.py chat {agent.slug} --channel {channel.slug}"
            raise CommandError(f"Stopped; {advice}", returncode=STOPPED) from None
        if options["json"]:
            answer = {
                "agent": agent.slug,
                "channel": channel.slug,
                "exchanges": [done.model_dump() for done in exchanges],
            }
            self.stdout.write(json.dumps(answer, ensure_ascii=False, indent=2))
        for done in exchanges:
            if done.status != Run.Status.COMPLETED:
                raise unanswered(f"turn {done.run} {done.status}: {done.error}", otherwise=FAILED)

    def _say_why_untraced(self, agent: Agent) -> None:
        """Say why there will be no trace, where no app traces the agent's turns."""
        # Each app says why it does not trace them; empty where it does.
        reasons = [import_string(path)(agent) for path in declared_list("chat_untraced")]
        if all(reasons):
            self.stderr.write(" ".join(reasons) or "No installed app traces turns.")

    def _channel(self, agent: Agent, slug: str | None) -> Channel:
        """Return the earlier conversation of this slug; without one begin a new one. An error of the command where there is none."""
        if slug is None:
            return begin_chat(agent)
        talks = Channel.objects.filter(memberships__agent=agent, synthetic=True, kind=Channel.Kind.DM)
        channel = talks.filter(slug=slug).first()
        if channel is None:
            names = ", ".join(talks.order_by("-pk").values_list("slug", flat=True)[:20]) or "none, there are none yet"
            raise unusable(f"--channel {slug[:80]!r}: allowed for {agent.slug}: {names}")
        return channel

    def _lines_typed(self, agent: Agent) -> Iterator[str]:
        """Yield what a person types, line by line, without blank lines, until the input ends (Ctrl-D)."""
        self.stdout.write(f"You talk to {printable(agent.display_name)}. Ctrl-D ends it.")
        while True:
            try:
                text = input("> ")
            except EOFError:
                self.stdout.write("")
                return
            if text.strip():
                yield text

    def _show(self, agent: Agent, done: Exchange, *, trace: bool, echo: bool) -> None:
        """Print the replies to a message, or why the agent says nothing.

        Args:
            trace: Also what the app that took part in the turn did.
            echo: Print the message itself first.
        """
        replies = done.replies
        if not replies:
            replies = [f"(says nothing: {done.silent})" if done.silent else "(says nothing)"]
        if echo:
            self.stdout.write(f"> {printable(done.message)}")
        for reply in replies:
            self.stdout.write(f"{printable(agent.display_name)}: {printable(reply)}")
        if not trace:
            return
        for line in done.lines:
            self.stdout.write(f"    {in_line(line, LONGEST_LINE)}")
        if done.summary_failed:
            self.stdout.write(f"    {in_line(f'summary: {done.summary_failed}', LONGEST_LINE)}")


def _messages_of(name: str) -> list[str]:
    """Return the messages of a file, a line each, without blank lines and those that begin with #; ``-`` is standard input.

    An error of the command where it cannot be read or holds none.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise unusable(f"--script {name}: {why}; allowed: a UTF-8 text file") from None
    messages = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not messages:
        raise unusable(f"--script {name}: no message; allowed: a message per line")
    return messages
