"""``manage.py try_proposition FILE:ID``: what one proposition scores on a few messages, before it counts."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from agents.kit.commands import (
    CodedCommand,
    console_for_bars,
    console_on,
    in_line,
    print_table,
    snippet,
    unanswered,
    unusable,
    wrong,
)
from agents.kit.text.wording import counted, number
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.commands import as_text
from evaluation.drafting.trying import Trial, Tried, try_proposition
from evaluation.propositions.files import DEFAULT, LoadedFile, PropositionError, load_file
from evaluation.propositions.schema import AGENT_NAME
from evaluation.wording import cost_line, judge_label


class Command(CodedCommand):
    help = (
        "Judge one proposition, active or not, on messages of an agent, and show scores, reasons and cost. Calls are in the ledger, "
        "no evaluation is stored. "
        "Exit code: 0 there is a score, 2 nothing could be scored."
    )
    requires_system_checks = ()  # a file being written is tried before all others are in order

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("proposition", metavar="FILE:ID", help="a proposition file, and the id of one in it")
        parser.add_argument(
            "--agent", default="", metavar="SLUG", help="whose messages (default: the agent the file is about)"
        )
        parser.add_argument("--n", type=int, default=10, help="most messages, 1 to 1000 (default: 10)")
        parser.add_argument(
            "--repeats", type=int, default=1, metavar="K", help="judgements per message, 1 to 20 (default: 1)"
        )
        parser.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
        parser.add_argument("--model", default="", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Try the proposition ``FILE:ID`` on messages of an agent and print what it scored.

        Raises:
            CommandError: There is no such proposition or agent, an option is wrong, or no message has a score (exit code 2).
        """
        file_name, _, proposition_id = options["proposition"].rpartition(":")
        try:
            file = load_file(Path(file_name))
            propositions = {proposition.id: proposition for proposition in (*file.propositions, *file.inactive)}
            if proposition_id not in propositions:
                raise unusable(f"{file_name} has no proposition {proposition_id!r}; it has: {', '.join(propositions)}")
            agent = _find_agent(file, options["agent"])
            with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
                task = bar.add_task("Judging", total=None)
                trial = try_proposition(
                    proposition=propositions[proposition_id],
                    agent=agent,
                    n=options["n"],
                    repeats=options["repeats"],
                    seed=options["seed"],
                    model=options["model"],
                    done=lambda judged: bar.advance(task, judged),
                )
        except (UnknownAgent, PropositionError) as error:
            raise unusable(error) from None
        except ValueError as error:
            raise wrong(error) from None
        if options["json"]:
            self.stdout.write(as_text(trial.model_dump()))
        else:
            show_trial(trial, self.stdout)
        if trial.mean is None:
            why = trial.reason or trial.hint
            raise unanswered(
                f"no score for {proposition_id} on messages of {agent.slug}: {why or 'all are trivially true'}"
            )


def _find_agent(file: LoadedFile, slug: str) -> Agent:
    """Return the agent of that slug; where none is given, the one that the file is about."""
    if not slug and file.agent_id == DEFAULT:
        raise wrong(f"{file.path} speaks of every agent: name one with --agent")
    agents = find_agents(slug or file.agent_id)
    if len(agents) != 1:
        raise wrong(f"--agent {slug}: name exactly one agent")
    return agents[0]


def show_trial(trial: Trial, out: Any) -> None:
    """Print what each message scored and why, and the sums; where nothing was judged, only why."""
    console = console_on(out)
    proposition = trial.about
    notes = []
    if not proposition.active:
        notes.append("not active")
    if proposition.inverted:
        notes.append("anti-pattern: scores are flipped")
    title = f"[bold]{snippet(proposition.id)}[/bold]"
    if notes:
        title += f" ({', '.join(notes)})"
    messages = f"{counted(len(trial.messages), 'message')} of {snippet(trial.agent)}"
    console.print(f"{title} on {messages}, judged by {snippet(judge_label(trial.judge))}")
    claim = proposition.claim.replace(AGENT_NAME, trial.agent_row.display_name)
    console.print(f"“{snippet(claim, 600)}”")
    if trial.reason:
        console.print(snippet(trial.reason, 600))
        return
    rows = [_row(tried) for tried in trial.messages]
    print_table(console, (">Score", "Message", "Why"), rows)
    _show_sums(trial, console)


def _row(tried: Tried) -> tuple[str, str, str]:
    judgement = tried.shown
    text = f"“{in_line(tried.text)}”"
    if judgement.status == "scored":
        return number(tried.score), text, in_line(judgement.reasoning)
    return judgement.status, text, in_line(judgement.reason)


def _show_sums(trial: Trial, console: Console) -> None:
    """Print mean, spread and noise where there are any, how many judgements have which status, the cost, and the hint."""
    spread = "" if trial.spread is None else f", spread between messages {trial.spread:.1f}"
    noise = "" if trial.noise is None else f", noise of one judgement {trial.noise:.1f}"
    statuses = {"scored": trial.scored, "trivial": trial.trivial, "unscored": trial.unscored}
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items() if count)
    console.print(f"Mean {number(trial.mean)} of 9{spread}{noise}; {counts}.")
    console.print(f"{cost_line(trial.spent, exact=trial.judge == 'rule').capitalize()}. No evaluation was stored.")
    if trial.hint:
        console.print(f"[yellow]{snippet(trial.hint, 400)}[/yellow]")
