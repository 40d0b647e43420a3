"""Labelled judgements that a judge may be shown as examples."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

LOSS = "loss"  # the verdict of a trial in which the judge agreed worse with people when it was shown examples


class FewShotExamples(models.Model):
    """The examples that a judge may be shown when it judges by a procedure, and how well it agreed with people before and after.

    A row is made by a trial (`manage.py calibrate_judge --few-shot`), so that no examples are in use whose effect was not measured. It
    refers to judgements and holds no text: examples whose message or label was deleted or changed cannot be used any more.
    """

    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64, help_text="that was labelled: without examples, and not simulated")
    digest = models.CharField(
        max_length=8, help_text="of the texts, claims and scores in the examples, and of their prompt"
    )
    scores = models.JSONField(help_text="primary keys of the labelled judgements, in the order shown")
    figures = models.JSONField(help_text="agreement with people without and with examples, in the newest trial")
    tried_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "few_shot_examples"
        ordering: ClassVar = ["-tried_at", "-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["judge", "procedure", "digest"], name="few_shot_examples_once")
        ]

    def __str__(self) -> str:
        return f"examples {self.digest} for {self.judge} ({self.procedure})"

    @property
    def sentence(self) -> str:
        """Return what their newest trial showed."""
        return str(self.figures["sentence"])

    @property
    def shows_loss(self) -> bool:
        return bool(self.figures["verdict"] == LOSS)
