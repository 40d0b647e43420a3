"""``manage.py debate``: have agents debate a question here and now, round by round, and show what it came to."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping
from functools import partial
from typing import Any

import sentry_sdk
from django.core.management.base import CommandError
from rich.console import Console

from agents.debates.debate import Progress, ask_rounds, play
from agents.debates.measures import Vote
from agents.debates.models import Debate, DebateRound, DebateTurn
from agents.debates.modes import MODES
from agents.debates.report import (
    EVIDENCE_HEADS,
    DebateReport,
    actor_line,
    as_json,
    as_markdown,
    evidence_cells,
    exit_line,
    report,
    round_name,
    talking_lines,
    vote_line,
)
from agents.debates.request import DebateRequest, request_debate
from agents.debates.starting import silent_offline
from agents.kit.commands import (
    FAILED,
    STOPPED,
    BaseCommand,
    console_on,
    in_line,
    print_table,
    snippet,
    unanswered,
    unusable,
    wrong,
)
from agents.kit.models import owner_name
from agents.kit.running import stopping_on_sigterm
from agents.kit.use_cases import add_options, fields_of, read_options, refusing

ANSWER_CHARACTERS = 300  # of a position, while it is played
PANEL = ("perspectives", "assignment", "seed")
ENDS = ("consensus", "convergence_rounds", "convergence_similarity", "confidence", "extra_rounds_on_groupthink")
NEW = ("mode", "agents", "rounds", "models", "poll", "judge", "real")


class Command(BaseCommand):
    help = f"""Have agents debate a question, round by round, until they agree, their positions stop changing, or the rounds are over.

First each seat is asked alone (the blind poll), then round by round with what the others said. At the end: what talking changed
against the poll, what it cost, how far they agree, and a warning where they agree too easily. Offline it is free and scripted.

  manage.py debate "Should the office move?" --mode delphi --agents michael,dwight,pam
  manage.py debate "Should the office move?" --mode delphi --agents michael,dwight,pam --next     only the poll and round 1
  manage.py debate 12 --next                   one more round of debate 12 (--finish: all that are left)
  manage.py debate 12 --markdown               what it came to, as a page; plays nothing

Modes:
{chr(10).join(f"  {mode.name:20} {mode.about}" for mode in MODES.values())}

Exit code: 0 the debate ended or waits for its next round, 1 it failed, 130 interrupted (it is back in the queue)."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        topic = "the question; or the number of a debate, to show it or go on with it"
        parser.add_argument("topic", nargs="?", help=topic)
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--next", action="store_true", help="play one round and stop")
        act.add_argument("--finish", action="store_true", help="of a debate that waits: play all rounds that are left")
        act.add_argument(
            "--markdown", action="store_true", help="print what a debate came to as a page, and play nothing"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        add_options(parser.add_argument_group("a new debate"), DebateRequest, *NEW)
        add_options(parser.add_argument_group("an expert panel"), DebateRequest, *PANEL)
        add_options(parser.add_argument_group("when it ends"), DebateRequest, *ENDS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Start the debate of a question, or find that of a number; play the rounds asked for, and print the results.

        A new debate is played to its end without ``--next``; one that exists only with ``--next`` or ``--finish``.

        Raises:
            CommandError: The options are not allowed, the debate cannot be played, it failed (but not with ``--markdown``), or was stopped.
        """
        topic = options["topic"]
        if topic is None:
            raise wrong("say the question, or the number of a debate; manage.py debate --help shows how")
        is_number = topic.strip().isdecimal()
        if options["markdown"] and not is_number:
            raise wrong("--markdown: only for the number of a debate; allowed for a new one: --json")
        with refusing(DebateRequest):
            debate = self._find_debate(options) if is_number else request_debate(read_options(DebateRequest, options))
            if not is_number or options["next"] or options["finish"]:
                debate = self._play(debate, rounds=1 if options["next"] else None, quiet=options["json"])
        results = report(debate)
        if options["json"]:
            self.stdout.write(as_json(results), ending="")
        elif options["markdown"]:
            self.stdout.write(as_markdown(results), ending="")
        else:
            self._show(results)
        if debate.status in (Debate.Status.FAILED, Debate.Status.ERRORED) and not options["markdown"]:
            why = in_line(debate.error, 2_000)
            raise unanswered(f"debate {debate.pk} {debate.get_status_display()}: {why}", otherwise=FAILED)

    def _find_debate(self, options: Mapping[str, Any]) -> Debate:
        """Return the debate of that number.

        Raises:
            CommandError: There is none, or options of a new debate were given.
        """
        number = options["topic"].strip()
        options_of_new = [_option(name, options[name]) for name in (*NEW, *PANEL, *ENDS) if options[name] is not None]
        if options_of_new:
            allowed = "--next, --finish, --markdown, --json"
            raise wrong(f"{', '.join(options_of_new)}: only for a new debate; allowed for debate {number}: {allowed}")
        # More digits are beyond what the database can compare.
        debate: Debate | None = Debate.objects.filter(pk=int(number[:18])).first()
        if debate is None:
            raise unusable(f"there is no debate {number}")
        return debate

    def _play(self, debate: Debate, *, rounds: int | None, quiet: bool) -> Debate:
        """Play so many rounds here (None = to the end), and print seats and each turn as it ends unless `quiet`; return the debate then.

        Raises:
            CommandError: It was interrupted, and is back in the queue.
            DebateRefused: It has ended.
        """
        console = console_on(self.stdout)
        progress: Progress | None = None
        if not quiet:
            self._announce(debate, console)
            progress = partial(_print_event, console=console)
        try:
            with stopping_on_sigterm(), sentry_sdk.start_transaction(op="agents.command", name="debate"):
                debate = ask_rounds(debate, rounds)
                return play(debate, owner=owner_name(), progress=progress)
        except KeyboardInterrupt:
            again = f"`manage.py work` continues it, or `manage.py debate {debate.pk} --next`"
            text = f"Stopped. Debate {debate.pk} is back in the queue: {again}."
            raise CommandError(text, returncode=STOPPED) from None

    def _announce(self, debate: Debate, console: Console) -> None:
        """Print the question, the seats, and which of them have nothing to say."""
        seats = [
            f"{seat.number} {seat.agent.display_name}{_in_brackets(seat.role, seat.perspective)}"
            for seat in debate.seats.select_related("agent").order_by("number")
        ]
        console.print(f"[bold]Debate {debate.pk}, {debate.mode}:[/bold] {snippet(debate.topic)}")
        console.print(f"Seats: {snippet(', '.join(seats), 2_000)}")
        silent = silent_offline(debate)
        if silent:
            names = snippet(", ".join(silent), 1_000)
            console.print(f"[yellow]{names}: no sample lines, so that the script says nothing for them.[/yellow]")

    def _show(self, results: DebateReport) -> None:
        """Print the results of a debate: rounds, what talking changed, agreement, groupthink, cost, how it ended, and how to go on."""
        console = console_on(self.stdout)
        meta = results.metadata
        evidence = results.evidence
        consensus = results.decision.consensus
        console.print(f"[bold]Debate {meta.id}, {meta.mode}:[/bold] {snippet(results.decision.topic)}")
        if line := actor_line(results):
            console.print(f"[yellow]{snippet(line, 1_000)}[/yellow]")
        if evidence.rounds:
            cells = [evidence_cells(row) for row in evidence.rounds]
            print_table(console, EVIDENCE_HEADS, cells, tight=True, wrapped=True)
        for line in talking_lines(results.decision.what_talking_changed):
            console.print(line)
        if consensus is not None and consensus.agreement is not None:
            heuristic = " (heuristic)" if consensus.heuristic else ""
            console.print(f"Agreement {consensus.agreement:.2f}{heuristic}: {snippet(consensus.summary, 1_000)}")
        if evidence.groupthink is not None and evidence.groupthink.detected:
            why = snippet("; ".join(evidence.groupthink.indicators), 1_000)
            console.print(
                f"[yellow]Warning: groupthink[/yellow] ({why}). {snippet(evidence.groupthink.recommendation)}"
            )
        unpriced = f", {meta.spent.unpriced} calls unpriced" if meta.spent.unpriced else ""
        cost = f"{meta.spent.cost_usd:.4f} US dollars{unpriced}"
        console.print(f"{meta.spent.tokens:,} tokens in {meta.spent.calls:,} calls, {cost}.")
        console.print(snippet(exit_line(results), 1_000) or f"Its status: {meta.status}.")
        if meta.status == Debate.WAITING:
            console.print(f"Next round: manage.py debate {meta.id} --next, all that are left: --finish")


def _option(name: str, value: Any) -> str:
    option = fields_of(DebateRequest)[name].option
    return option.replace("--", "--no-") if value is False else option


def _in_brackets(*names: str) -> str:
    """Return those of the names that are not empty, in brackets."""
    text = ", ".join(name for name in names if name)
    return f" ({text})" if text else ""


def _print_event(event: DebateTurn | DebateRound, *, console: Console) -> None:
    """Print a turn or a round that has just ended."""
    if isinstance(event, DebateRound):
        _print_round(event, console)
    else:
        _print_turn(event, console)


def _print_round(round: DebateRound, console: Console) -> None:
    agreement = round.consensus.get("agreement")
    agreement_text = "" if agreement is None else f"; agreement {agreement:.2f}"
    vote = vote_line(Vote.model_validate(round.statistics["vote"]))
    console.print(f"[bold]{round_name(round.number).capitalize()}[/bold]: {vote}{agreement_text}")


def _print_turn(turn: DebateTurn, console: Console) -> None:
    """Print e.g. ``  2 Dwight: no, 0.8: The lease is too long.``; without an answer its status and why."""
    answer = turn.message.payload if turn.message else {}
    text = f"{turn.get_status_display()}: {turn.error}"
    if answer:
        stance = f"{answer['stance']}, " if answer.get("stance") else ""
        text = f"{stance}{answer.get('confidence', '–')}: {answer.get('position', '')}"
    if turn.violation:
        text += f" (breaks a rule: {turn.violation})"
    name = snippet(turn.seat.agent.display_name, 40)
    console.print(f"  {turn.seat.number} {name}: {snippet(text, ANSWER_CHARACTERS)}")
