"""``manage.py train_behavior_detector``: make the weights of the offline behaviour-request detector from its sentences."""

from __future__ import annotations

import hashlib
import json
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from correction.behavior.linear import WEIGHTS
from correction.behavior.training import Example, as_text, by_file, read_examples, train
from correction.behavior.weights_comparison import differences


class Command(BaseCommand):
    help = (
        "Train the offline detector of behaviour requests on correction/behavior_data/training*.jsonl and write its weights (about three "
        "minutes; on a busy machine OPENBLAS_NUM_THREADS=1 helps). Exit code: 0 written (or, with --check, the file is what these "
        "sentences give but for rounding), 1 it is not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", type=Path, default=WEIGHTS, metavar="FILE", help="default: %(default)s")
        parser.add_argument("--check", action="store_true", help="write nothing, only compare")

    def handle(self, *args: Any, **options: Any) -> None:
        examples = read_examples()
        trained = train(examples)
        document, path = trained.document, options["out"]
        text, threshold = as_text(document), document["threshold"]
        unseen_files = by_file(examples, (document["calibration"]["slope"], document["calibration"]["shift"]))
        self.stdout.write(
            f"{len(examples):,} sentences; {len(text.encode()):,} bytes, SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]}\n"
            f"cross-validated by file: {_figures(examples, unseen_files, threshold)}\n"
            f"cross-validated at random: {_figures(examples, trained.at_random, threshold)}"
        )
        if not options["check"]:
            path.write_text(text, encoding="utf-8")
            self.stdout.write(f"{path} written.")
            return
        if not path.exists():
            raise CommandError(f"{path} is not there: train_behavior_detector", returncode=1)
        if found := differences(json.loads(path.read_text(encoding="utf-8")), document):
            raise CommandError(
                f"{path} is not what these sentences give ({', '.join(found)}): train_behavior_detector", returncode=1
            )
        self.stdout.write(f"{path} is what these sentences give.")


def _figures(examples: Sequence[Example], probabilities: Iterable[float], threshold: float) -> str:
    """Recall, precision and false-positive rate at the threshold."""
    found = [example.request for example, p in zip(examples, probabilities, strict=True) if p >= threshold]
    right, requests = sum(found), sum(example.request for example in examples)
    wrong, others = len(found) - right, len(examples) - requests
    return f"recall {right / requests:.3f}, precision {right / max(1, len(found)):.3f}, false-positive rate {wrong / others:.3f}"
