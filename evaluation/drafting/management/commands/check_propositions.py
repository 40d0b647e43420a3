"""``manage.py check_propositions``: are all proposition files valid, and who do they speak of?"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError

from agents.kit.commands import BaseCommand
from agents.kit.text.wording import counted
from agents.models import Agent
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
from evaluation.propositions.schema import PropositionFile


class Command(BaseCommand):
    requires_system_checks = ()  # its purpose is to run when a file is broken
    help = "Validate every proposition file (or the FILES given) and list what they hold. Exit code 1 when one cannot be used."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, help="check only these files")
        parser.add_argument(
            "--schema", action="store_true", help="print the JSON Schema of the format, for editors, and exit"
        )

    def handle(self, *args: Any, **options: Any) -> None:
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
            raise CommandError(f"{len(problems)} problem{'s'[: len(problems) > 1]}:\n" + "\n".join(map(str, problems)))

    def _report(self, files: list[LoadedFile], *, broken: bool) -> None:
        try:
            slugs: set[str] | None = set(Agent.objects.listed().values_list("slug", flat=True))
        except DatabaseError:  # not set up yet
            slugs = None
        waiting, absent = 0, dict[str, None]()
        for file in files:
            states = Counter(p.state for p in file.inactive)
            waiting += states["suggested"]
            known = slugs is None or file.agent_id in slugs | {DEFAULT}
            if not known and is_example(file):
                absent[file.agent_id] = None
                continue
            kinds = Counter(
                "rule" if p.rule else "cues" if p.cues or p.measure else "judge only" for p in file.propositions
            )
            kinds_shown = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            parts = [
                f"{counted(len(file.propositions), 'proposition')} ({kinds_shown})" if file.propositions else "",
                counted(states["suggested"], "suggestion") if states["suggested"] else "",
                *(f"{states[name]} {name}" for name in ("rejected", "retired") if states[name]),
            ]
            about = " (about drafts)" if file.level == "action" else ""
            note = "" if known else "   (no agent of that slug here)"
            self.stdout.write(f"{file.dimension}/{file.agent_id}{about}: {', '.join(filter(None, parts))}{note}")
        if absent:
            self.stdout.write(f"For example agents that are not here: {', '.join(absent)}.")
        if files:
            valid = counted(sum(len(file.propositions) for file in files), "proposition")
            them = "it" if waiting == 1 else "them"
            note = f" {counted(waiting, 'suggestion')} not judged before you accept {them}." if waiting else ""
            summary = f"{counted(len(files), 'file')}, {valid}"
            if broken:
                self.stdout.write(f"{summary} can be used.{note}")
            else:
                self.stdout.write(self.style.SUCCESS(f"{summary}, all valid.{note}"))


def _collisions(files: list[LoadedFile]) -> list[LoadedFile]:
    """The examples' files whose slug an agent of the team's own has: they do not apply to it."""
    try:
        own = own_agents_like_examples()
    except DatabaseError:
        return []
    return [file for file in files if file.agent_id in own and is_example(file)]
