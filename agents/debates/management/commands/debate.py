"""``manage.py debate``: have agents debate a question here and now, round by round, and show what it came to."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Mapping
from typing import Any

import sentry_sdk
from django.core.management.base import CommandError
from rich.console import Console

from agents.debates.debate import DebateRefused, ask_rounds, play, silent_offline, start_debate
from agents.debates.measures import Criteria, Vote
from agents.debates.models import Debate, DebateRound, DebateTurn
from agents.debates.modes import MODES, PERSPECTIVES
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

CRITERIA = Criteria()
OFF = "off"
ANSWER_CHARACTERS = 300  # of a position, while it is played
# Options that only a new debate takes; they are named as the settings are.
NEW = ("mode", "agents", "rounds", "model", "perspectives", "assignment", "seed", "consensus", "convergence_rounds",
       "convergence_similarity", "confidence", "extra_rounds_on_groupthink", "poll", "judge", "real")  # fmt: skip


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
        new, panel = parser.add_argument_group("a new debate"), parser.add_argument_group("an expert panel")
        ends = parser.add_argument_group("when it ends", "each criterion takes a number, or off")
        act = parser.add_mutually_exclusive_group()
        flag, no = {"action": "store_true"}, {"action": "store_false", "default": None}
        integer, number = {"type": int, "metavar": "N"}, {"type": _number, "metavar": "N"}
        arguments: tuple[tuple[Any, str, dict[str, Any], str], ...] = (
            (parser, "topic", {"nargs": "?"}, "the question; or the number of a debate, to show it or go on with it"),
            (act, "--next", flag, "play one round and stop"),
            (act, "--finish", flag, "of a debate that waits: play all rounds that are left"),
            (act, "--markdown", flag, "print what a debate came to as a page, and play nothing"),
            (parser, "--json", flag, "print one JSON object and nothing else"),
            (new, "--mode", {}, f"its rules: {', '.join(MODES)} (default: {next(iter(MODES))})"),
            (new, "--agents", {"metavar": "SLUGS"}, "who debates, in the order of the seats, separated by commas"),
            (new, "--rounds", integer, f"at most, 1 to 100 (default: {CRITERIA.max_rounds})"),
            (new, "--model", {"action": "append", "metavar": "SEAT=MODEL"}, "acts for a seat (its number or agent); repeatable"),
            (new, "--no-poll", {**no, "dest": "poll"}, "without the blind poll"),
            (new, "--no-judge", {**no, "dest": "judge"}, "do not ask a judge how far the answers agree"),
            (new, "--real", {**flag, "default": None}, "count what is said as the agents' ordinary speech when they are measured"),
            (panel, "--perspectives", {"metavar": "NAMES"}, f"separated by commas, also your own (default: {','.join(PERSPECTIVES)})"),
            (panel, "--assignment", {}, "round-robin (default), random, or explicit: one for each seat, in order"),
            (panel, "--seed", integer, "of the random assignment (default: 0)"),
            (ends, "--consensus", number, f"agreement of the last round, 0 to 1 (default: {CRITERIA.consensus})"),
            (ends, "--convergence-rounds", number, f"in which no seat changes its position (default: {CRITERIA.convergence_rounds})"),
            (ends, "--convergence-similarity", number,
             f"from which two positions of a seat are the same, 0 to 1 (default: {CRITERIA.convergence_similarity})"),
            (ends, "--confidence", number, f"that every seat has, 0 to 1 (default: {CRITERIA.confidence})"),
            (ends, "--extra-rounds-on-groupthink", integer, "played at most where it would end and they agree too easily (default: 0)"),
        )  # fmt: skip
        for group, name, more, about in arguments:
            group.add_argument(name, help=about, **more)

    def handle(self, *args: Any, **options: Any) -> None:
        topic, new_settings = options["topic"], {name: options[name] for name in NEW if options[name] is not None}
        if topic is None:
            raise wrong("say the question, or the number of a debate; manage.py debate --help shows how")
        old = topic.strip().isdecimal()
        if options["markdown"] and not old:
            raise wrong("--markdown: only for the number of a debate; allowed for a new one: --json")
        try:
            debate = self._existing(topic, new_settings) if old else self._new(topic, new_settings)
            if not old or options["next"] or options["finish"]:
                debate = self._play(debate, 1 if options["next"] else None, quiet=options["json"])
        except DebateRefused as error:
            named = error.field in ("agents", "models", "debate")
            raise (unusable if named else wrong)(error) from None
        shown = report(debate)
        if options["json"] or options["markdown"]:
            self.stdout.write((as_json if options["json"] else as_markdown)(shown), ending="")
        else:
            self._show(shown)
        if debate.status in (Debate.Status.FAILED, Debate.Status.ERRORED) and not options["markdown"]:
            why = in_line(debate.error, 2_000)
            raise unanswered(f"debate {debate.pk} {debate.get_status_display()}: {why}", otherwise=FAILED)

    def _existing(self, number: str, new_settings: Mapping[str, Any]) -> Debate:
        if new_settings:
            names = ", ".join(_option(name) for name in new_settings)
            raise wrong(
                f"{names}: only for a new debate; allowed for debate {number}: --next, --finish, --markdown, --json"
            )
        debate: Debate | None = Debate.objects.filter(pk=int(number[:18])).first()
        if debate is None:
            raise unusable(f"there is no debate {number}")
        return debate

    def _new(self, topic: str, new_settings: dict[str, Any]) -> Debate:
        settings: dict[str, Any] = {
            "agents": "",
            **{name: None if new_settings[name] == OFF else new_settings[name] for name in new_settings},
        }
        for name in {"agents", "perspectives"} & settings.keys():
            settings[name] = [part.strip() for part in settings[name].split(",") if part.strip()]
        models = {}
        for pair in settings.pop("model", ()):
            seat, equals, model = pair.partition("=")
            if not equals:
                raise wrong(f"--model {pair!r}: allowed: SEAT=MODEL, e.g. 2=claude-haiku-5-5")
            models[seat.strip()] = model
        return start_debate(**{"topic": topic, "mode": next(iter(MODES)), "models": models, **settings})

    def _play(self, debate: Debate, rounds: int | None, *, quiet: bool) -> Debate:
        console = console_on(self.stdout)
        if not quiet:
            self._announce(debate, console)
        try:
            with stopping_on_sigterm(), sentry_sdk.start_transaction(op="agents.command", name="debate"):
                debate = ask_rounds(debate, rounds)
                return play(debate, owner=owner_name(), progress=None if quiet else lambda event: _line(event, console))
        except KeyboardInterrupt:
            again = f"`manage.py work` continues it, or `manage.py debate {debate.pk} --next`"
            text = f"Stopped. Debate {debate.pk} is back in the queue: {again}."
            raise CommandError(text, returncode=STOPPED) from None

    def _announce(self, debate: Debate, console: Console) -> None:
        seats = debate.seats.select_related("agent").order_by("number")
        who = (f"{seat.number} {seat.agent.display_name}{_in_brackets(seat.role, seat.perspective)}" for seat in seats)
        console.print(f"[bold]Debate {debate.pk}, {debate.mode}:[/bold] {snippet(debate.topic)}")
        console.print(f"Seats: {snippet(', '.join(who), 2_000)}")
        if silent := silent_offline(debate):
            names = snippet(", ".join(silent), 1_000)
            console.print(f"[yellow]{names}: no sample lines, so that the script says nothing for them.[/yellow]")

    def _show(self, shown: DebateReport) -> None:
        console, meta = console_on(self.stdout), shown.metadata
        console.print(f"[bold]Debate {meta.id}, {meta.mode}:[/bold] {snippet(shown.decision.topic)}")
        if line := actor_line(shown):
            console.print(f"[yellow]{snippet(line, 1_000)}[/yellow]")
        if shown.evidence.rounds:
            cells = [evidence_cells(row) for row in shown.evidence.rounds]
            print_table(console, EVIDENCE_HEADS, cells, tight=True, wrapped=True)
        for line in talking_lines(shown.decision.what_talking_changed):
            console.print(line)
        if (agreed := shown.decision.consensus) is not None and agreed.agreement is not None:
            heuristic = " (heuristic)" if agreed.heuristic else ""
            console.print(f"Agreement {agreed.agreement:.2f}{heuristic}: {snippet(agreed.summary, 1_000)}")
        if shown.evidence.groupthink is not None and shown.evidence.groupthink.detected:
            why = snippet("; ".join(shown.evidence.groupthink.indicators), 1_000)
            console.print(
                f"[yellow]Warning: groupthink[/yellow] ({why}). {snippet(shown.evidence.groupthink.recommendation)}"
            )
        cost = f"{meta.spent.cost_usd:.4f} US dollars" + (
            f", {meta.spent.unpriced} calls unpriced" if meta.spent.unpriced else ""
        )
        console.print(f"{meta.spent.tokens:,} tokens in {meta.spent.calls:,} calls, {cost}.")
        console.print(snippet(exit_line(shown), 1_000) or f"Its status: {meta.status}.")
        if meta.status == Debate.WAITING:
            console.print(f"Next round: manage.py debate {meta.id} --next, all that are left: --finish")


def _number(text: str) -> float | str:
    try:
        return OFF if text == OFF else float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text[:80]!r}; allowed: a number, or {OFF}") from None


def _option(name: str) -> str:
    return f"--no-{name}" if name in ("poll", "judge") else f"--{name.replace('_', '-')}"


def _in_brackets(*names: str) -> str:
    text = ", ".join(filter(None, names))
    return f" ({text})" if text else ""


def _line(event: DebateTurn | DebateRound, console: Console) -> None:
    """Show a turn or a round that has just ended."""
    if isinstance(event, DebateRound):
        agreement = event.consensus.get("agreement")
        sure = "" if agreement is None else f"; agreement {agreement:.2f}"
        vote = vote_line(Vote.model_validate(event.statistics["vote"]))
        console.print(f"[bold]{round_name(event.number).capitalize()}[/bold]: {vote}{sure}")
        return
    seat, answer = event.seat, event.message.payload if event.message else {}
    if not answer:
        said = f"{event.get_status_display()}: {event.error}"
    else:
        stance = f"{answer['stance']}, " if answer.get("stance") else ""
        said = f"{stance}{answer.get('confidence', '–')}: {answer.get('position', '')}"
    broken = f" (breaks a rule: {event.violation})" if event.violation else ""
    console.print(
        f"  {seat.number} {snippet(seat.agent.display_name, 40)}: {snippet(said + broken, ANSWER_CHARACTERS)}"
    )
