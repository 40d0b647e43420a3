"""``manage.py export_scores``: every judgement as a row."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.db.models import Q, QuerySet

from agents.kit.commands import BaseCommand, unusable
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.change.models import Baseline
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.export import write_csv, write_jsonl

WRITERS = {"csv": write_csv, "jsonl": write_jsonl}


class Command(BaseCommand):
    help = "Export judgements, one row per message and proposition. Default: the current baselines of agents, and their channels."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=list(WRITERS), default="csv", help="default: csv")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write here instead of standard output")
        parser.add_argument(
            "--run", action="append", type=int, default=[], metavar="ID", help="only this evaluation run; repeatable"
        )
        parser.add_argument("--agents", default="", help="only these agents, slugs separated by commas")
        parser.add_argument("--all", action="store_true", help="all runs, not only current baselines")

    def handle(self, *args: Any, **options: Any) -> None:
        scores = EvaluationScore.objects.exclude(status=EvaluationScore.Status.PENDING)
        if options["run"]:
            scores = scores.filter(evaluation_run__in=_existing(options["run"]))
        elif not options["all"]:
            current = Baseline.objects.values("evaluation_run")
            scores = scores.filter(_in_runs_or_their_channels(EvaluationRun.objects.filter(pk__in=current)))
        if options["agents"]:
            try:
                agents = find_agents(options["agents"])
            except UnknownAgent as error:
                raise unusable(error) from None
            scores = scores.filter(_in_runs_or_their_channels(EvaluationRun.objects.filter(agent__in=agents)))
        write = WRITERS[options["format"]]
        if options["out"] is None:
            write(scores, sys.stdout)
            return
        try:
            with options["out"].open("w", encoding="utf-8", newline="") as out:
                count = write(scores, out)
        except OSError as error:
            raise unusable(f"--out {options['out']}: {error.strerror}") from None
        self.stderr.write(f"{count} rows written to {options['out']}.")


def _existing(runs: list[int]) -> list[int]:
    """Return these primary keys of evaluations.

    Raises:
        CommandError: There is no such evaluation.
    """
    missing = set(runs) - EvaluationRun.objects.in_bulk(runs).keys()
    if missing:
        names = ", ".join(map(str, sorted(missing)))
        raise unusable(f"--run {names}: there is no such evaluation run")
    return runs


def _in_runs_or_their_channels(runs: QuerySet[EvaluationRun]) -> Q:
    """Return the condition for judgements of these evaluations, and of the evaluations of channels that they share."""
    channel_runs = ChannelShare.objects.filter(agent_run__in=runs).values("channel_run")
    return Q(evaluation_run__in=runs) | Q(evaluation_run__in=channel_runs)
