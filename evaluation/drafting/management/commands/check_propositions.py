"""``manage.py check_propositions``: are all proposition files valid, and who do they speak of?"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError
from django.db.models import QuerySet

from agents.kit.commands import BaseCommand
from agents.kit.text.wording import counted
from agents.models import Agent, Channel
from evaluation.dimensions import CHANNEL_DIMENSIONS
from evaluation.propositions.files import (
    DEFAULT,
    FileProblem,
    LoadedFile,
    PropositionError,
    is_example,
    load_all,
    load_file,
    own_agents_like_examples,
)
from evaluation.propositions.schema import Proposition, PropositionFile


class Command(BaseCommand):
    requires_system_checks = ()  # its purpose is to run when a file is broken
    help = "Validate every proposition file (or the FILES given) and list what they hold. Exit code 1 when one cannot be used."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, help="check only these files")
        parser.add_argument(
            "--schema", action="store_true", help="print the JSON Schema of the format, for editors, and exit"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read all proposition files or those named, print what they hold, and on stderr which do not apply to an agent here.

        A file is passed over where it is about an example agent, and the agent of that slug here is the team's own. With ``--schema`` only
        the JSON Schema of the format is printed.

        Raises:
            CommandError: A file cannot be used; names every problem.
        """
        if options["schema"]:
            self.stdout.write(json.dumps(PropositionFile.model_json_schema(), indent=2, ensure_ascii=False))
            return
        files: list[LoadedFile] = []
        problems: list[FileProblem] = []
        try:
            files = [load_file(path) for path in options["files"]] if options["files"] else load_all()
        except PropositionError as error:
            problems = error.problems
        problems += [problem for file in files for problem in file.problems]
        files = [file for file in files if not file.problems]
        self._report(files, broken=bool(problems))
        for file in _collisions(files):
            self.stderr.write(
                f"{file.path} is for the example agent {file.agent_id}; the agent {file.agent_id} here is your own, so the file does "
                "not apply to it. Write its propositions in a folder of PROPOSITION_DIRS."
            )
        if problems:
            raise CommandError(f"{counted(len(problems), 'problem')}:\n" + "\n".join(map(str, problems)))

    def _report(self, files: list[LoadedFile], *, broken: bool) -> None:
        """Print a line for each file that can be used, and the sums.

        Example agents that are not here are named on one line together, without their files.

        Args:
            broken: Whether there are other files that cannot be used; then the sums do not say "all valid".
        """
        agents = _known_slugs(Agent.objects.listed())
        channels = _known_slugs(Channel.objects.all())
        suggestions = 0
        absent_examples: dict[str, None] = {}
        for file in files:
            suggestions += sum(proposition.state == "suggested" for proposition in file.inactive)
            is_about_channel = file.dimension in CHANNEL_DIMENSIONS
            known = channels if is_about_channel else agents
            if known is None or file.agent_id in known:
                self.stdout.write(_file_line(file))
            elif is_example(file):
                absent_examples[file.agent_id] = None
            else:
                kind = "channel" if is_about_channel else "agent"
                self.stdout.write(f"{_file_line(file)}   (no {kind} of that slug here)")
        if absent_examples:
            self.stdout.write(f"For example agents that are not here: {', '.join(absent_examples)}.")
        if not files:
            return
        valid = counted(sum(len(file.propositions) for file in files), "proposition")
        summary = f"{counted(len(files), 'file')}, {valid}"
        note = ""
        if suggestions:
            them = "it" if suggestions == 1 else "them"
            note = f" {counted(suggestions, 'suggestion')} not judged before you accept {them}."
        if broken:
            self.stdout.write(f"{summary} can be used.{note}")
        else:
            self.stdout.write(self.style.SUCCESS(f"{summary}, all valid.{note}"))


def _known_slugs(rows: QuerySet[Any]) -> set[str] | None:
    """Return the slugs of agents, or channels, that a file may be about; None where the database is not set up yet."""
    try:
        return {DEFAULT, *rows.values_list("slug", flat=True)}
    except DatabaseError:
        return None


def _file_line(file: LoadedFile) -> str:
    """Return what a file holds, e.g. ``adherence/dwight: 6 propositions (2 cues, 4 judge only), 1 suggestion, 2 retired``."""
    groups = []
    if file.propositions:
        kinds = Counter(_kind(proposition) for proposition in file.propositions)
        kind_counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        groups.append(f"{counted(len(file.propositions), 'proposition')} ({kind_counts})")
    states = Counter(proposition.state for proposition in file.inactive)
    if states["suggested"]:
        groups.append(counted(states["suggested"], "suggestion"))
    for state in ("rejected", "retired"):
        if states[state]:
            groups.append(f"{states[state]} {state}")
    about_drafts = " (about drafts)" if file.level == "action" else ""
    return f"{file.dimension}/{file.agent_id}{about_drafts}: {', '.join(groups)}"


def _kind(proposition: Proposition) -> str:
    """Return what judges a proposition."""
    if proposition.rule:
        return "rule"
    return "cues" if proposition.cues or proposition.measure else "judge only"


def _collisions(files: list[LoadedFile]) -> list[LoadedFile]:
    """Return the examples' files whose slug an agent of the team's own has: they do not apply to it."""
    try:
        own = own_agents_like_examples()
    except DatabaseError:
        return []
    return [file for file in files if file.agent_id in own and is_example(file)]
