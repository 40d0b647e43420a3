"""``manage.py train_behavior_detector``: make the weights of the offline behaviour-request detector from its sentences."""

from __future__ import annotations

import hashlib
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from correction.behavior.linear import WEIGHTS
from correction.behavior.training import as_text, read_examples, train


class Command(BaseCommand):
    help = (
        "Train the offline detector of behaviour requests on correction/behavior_data/training*.jsonl and write its weights. The same "
        "sentences give the same file. Exit code: 0 written (or, with --check, the file is what they give), 1 it is not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", type=Path, default=WEIGHTS, metavar="FILE", help="default: %(default)s")
        parser.add_argument("--check", action="store_true", help="write nothing, only compare")

    def handle(self, *args: Any, **options: Any) -> None:
        examples = read_examples()
        document, probabilities = train(examples)
        text, path = as_text(document), options["out"]
        asked = [p >= document["threshold"] for p in probabilities]
        right = sum(a and e.request for a, e in zip(asked, examples, strict=True))
        wrong = sum(a and not e.request for a, e in zip(asked, examples, strict=True))
        requests, others = document["examples"]["requests"], document["examples"]["others"]
        self.stdout.write(
            f"{len(examples):,} sentences, cross-validated: recall {right / requests:.3f}, precision {right / max(1, right + wrong):.3f}, "
            f"false-positive rate {wrong / others:.3f}; {len(text.encode()):,} bytes, "
            f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        )
        if not options["check"]:
            path.write_text(text, encoding="utf-8")
            self.stdout.write(f"{path} written.")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise CommandError(f"{path} is not what these sentences give: train_behavior_detector", returncode=1)
