"""What `manage.py experiment` and `manage.py lab` share: the sentence of an estimate, and playing with progress bars."""

from __future__ import annotations

import sys

from django.core.management.base import CommandError

from agents.kit.commands import STOPPED
from agents.kit.running import stopping_on_sigterm
from evaluation.commands import ProgressBar
from evaluation.experiments.estimate import ExperimentEstimate
from evaluation.experiments.measuring import evaluations, judge_here
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import play
from evaluation.experiments.report import ExperimentReport, report, rounded


def estimate_line(estimate: ExperimentEstimate) -> str:
    """Say what would be played, asked and paid, in one sentence; "unpriced" where the cost is unknown."""
    if estimate.usd is None:
        cost = "unpriced"
    elif estimate.usd:
        cost = f"some {rounded(estimate.usd)} US dollars"
    else:
        cost = "free of cost"
    return (
        f"{estimate.conversations:,} conversations, {estimate.turns:,} turns: about {estimate.actor_calls:,} calls of "
        f"{estimate.actor_model} ({estimate.actor_tokens:,} tokens) and {estimate.judge_calls:,} of {estimate.judge} "
        f"({estimate.judge_tokens:,} tokens), {cost}; what the gate and other stages ask comes on top."
    )


def play_and_judge(experiment: Experiment, *, quiet: bool) -> ExperimentReport:
    """Play and then judge what is left of an experiment, with two progress bars on stderr unless `quiet`, and return its report.

    Raises:
        CommandError: It was stopped.
    """
    try:
        with stopping_on_sigterm():
            with ProgressBar("", sys.stderr, quiet=quiet) as bar:
                ended = experiment.environments.filter(status__in=ExperimentEnvironment.FINAL).count()
                task = bar.add_task("Playing", total=experiment.environments.count(), completed=ended)
                experiment = play(experiment, progress=lambda environment: bar.update(task, advance=1))
            with ProgressBar("Judging", sys.stderr, quiet=quiet) as bar:
                bar.prepared(list(evaluations(experiment).filter(judge=experiment.judge)))
                judge_here(experiment, progress=bar.progress)
    except KeyboardInterrupt:
        raise CommandError(
            f"Stopped. What was played is stored: manage.py experiment run {experiment.pk} resumes it.",
            returncode=STOPPED,
        ) from None
    experiment.refresh_from_db()
    return report(experiment)
