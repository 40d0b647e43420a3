"""``manage.py draft_propositions``: have a model suggest propositions from personas, and write them to a file of the team's."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from rich.progress import Progress

from agents.kit.commands import CodedCommand, console_for_bars, console_on, snippet, unanswered, unusable
from agents.kit.text.wording import counted
from agents.kit.use_cases import add_options, read_options
from agents.models.conversations import NO_AGENTS, UnknownAgent
from evaluation.commands import as_text
from evaluation.drafting.editing import NO_FOLDER, CannotSave, team_folder
from evaluation.drafting.jobs import SuggestionsRequest
from evaluation.drafting.suggesting import Suggestions, suggest_for, write_suggestions
from evaluation.propositions.files import PropositionError
from evaluation.propositions.schema import PropositionSpec
from evaluation.wording import cost_line, judge_label


class Command(CodedCommand):
    help = (
        "Have a model suggest propositions from personas: rules, cues and anti-patterns, each with the words of the persona it comes from. "
        "They are written to the first of PROPOSITION_DIRS as suggestions, which are not judged before you accept them. "
        "Exit code: 0 asked and written, 2 for some agent there was no answer or its file could not be written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_options(parser, SuggestionsRequest)
        add = parser.add_argument
        add("--dry-run", action="store_true", help="ask and show, write nothing")
        add("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask for suggestions about the agents, write them to files (not with ``--dry-run``), and print them.

        Raises:
            CommandError: They cannot be asked for; or for some agent there was no answer, or its file could not be written (exit code 2).
        """
        request = read_options(SuggestionsRequest, options)
        is_dry_run = options["dry_run"]
        folder = None if is_dry_run else team_folder()  # None: nothing is written
        if folder is None and not is_dry_run:
            raise unusable(NO_FOLDER)
        try:
            suggestions = _ask(request)
        except PropositionError as error:
            raise unusable(f"proposition files cannot be used:\n{error}") from None
        except UnknownAgent as error:
            raise unusable(f"--agents: {error}") from None
        except ValueError as error:
            raise unusable(error) from None
        if folder is not None:
            _write_all(suggestions, folder)
        judge = request.model or str(settings.JUDGE_MODEL)
        if options["json"]:
            rows = [of_agent.model_dump() for of_agent in suggestions]
            self.stdout.write(as_text({"judge": judge, "dry_run": is_dry_run, "agents": rows}))
        else:
            self._show(suggestions, judge, is_dry_run=is_dry_run)
        failed = [
            f"{of_agent.agent}: {of_agent.problem or of_agent.reason}"
            for of_agent in suggestions
            if of_agent.failed or of_agent.problem
        ]
        if failed:
            raise unanswered("no suggestions for:\n  " + "\n  ".join(failed))

    def _show(self, suggestions: Sequence[Suggestions], judge: str, *, is_dry_run: bool) -> None:
        """Print what was suggested about each agent, the sums, the cost of each agent's calls, and how to go on."""
        self.stdout.write(f"Suggested by {judge_label(judge)}")
        for of_agent in suggestions:
            _show_agent(of_agent, console_on(self.stdout))
        usable = sum(len(of_agent.suggestions) for of_agent in suggestions)
        dropped = sum(len(of_agent.dropped) for of_agent in suggestions)
        written = " Nothing was written." if is_dry_run else ""
        self.stdout.write(f"{counted(usable, 'suggestion')}, {dropped} dropped.{written}")
        for of_agent in suggestions:
            if of_agent.calls:
                self.stdout.write(f"  {of_agent.agent}: {cost_line(of_agent.spent)}")
        if usable and not is_dry_run:
            self.stdout.write("Try one first: manage.py try_proposition FILE:ID --agent AGENT.")
            self.stdout.write("Accept or reject them in the console (Quality › Propositions), or by editing the files.")


def _ask(request: SuggestionsRequest) -> list[Suggestions]:
    """Return what the model suggests about each agent that is asked for.

    Raises:
        ValueError, PropositionError: As `suggest_for`; there are no agents.
    """
    agents = request.find_agents()
    if not agents:
        raise ValueError(NO_AGENTS)
    with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
        task = bar.add_task("Asking", total=len(agents))
        return suggest_for(agents=agents, model=request.model, most=request.max, done=partial(bar.advance, task))


def _write_all(suggestions: Sequence[Suggestions], folder: Path) -> None:
    """Write the suggestions about each agent, and note with them why they could not be written."""
    for of_agent in suggestions:
        try:
            write_suggestions(of_agent, folder=folder)
        except CannotSave as problem:
            of_agent.problem = str(problem)


def _show_agent(suggestions: Suggestions, console: Any) -> None:
    """Print what was suggested about one agent, what was dropped and why, and where the rest was written, or why it was not."""
    summary = snippet(suggestions.reason, 400)
    if suggestions.usable:
        summary = counted(len(suggestions.usable), "suggestion")
    console.print(f"[bold]{snippet(suggestions.agent)}[/bold]: {summary}")
    for suggestion in suggestions.usable:
        spec = suggestion.spec
        console.print(f"  {spec.id} ({_kind(spec)}): {snippet(spec.claim)}")
        console.print(f"      from “{snippet(spec.source, 160)}”")
    for dropped in suggestions.dropped:
        console.print(f"  dropped: {snippet(dropped.reason)} – {snippet(dropped.claim, 100)}")
    if suggestions.file:
        verb = "added to" if suggestions.appended else "written to"
        console.print(f"  {verb} {snippet(suggestions.file, 400)}")
    if suggestions.problem:
        console.print(f"  [red]not written[/red]: {snippet(suggestions.problem, 600)}")


def _kind(spec: PropositionSpec) -> str:
    """Return what judges a suggestion, and whether it is an anti-pattern."""
    kind = "judge only"
    if spec.rule:
        kind = "rule"
    elif spec.cues:
        kind = "cues"
    return f"{kind}, anti-pattern" if spec.inverted else kind
