"""Labelled judgements that a judge may be shown as examples."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class FewShotExamples(models.Model):
    """The examples that a judge may be shown when it judges by a procedure, and how well it agreed with people before and after.

    A row is made by a trial (`manage.py calibrate_judge --few-shot`), so that no examples are in use whose effect was not measured. It
    refers to judgements and holds no text: examples whose message was deleted or changed cannot be used any more.
    """

    judge = models.CharField(max_length=200)
    procedure = models.CharField(max_length=64, help_text="that was labelled: without examples, and not simulated")
    digest = models.CharField(
        max_length=8, help_text="of the texts, claims and scores in the examples, and of their prompt"
    )
    items = models.JSONField(help_text="the judgements, each with the score that people gave")
    figures = models.JSONField(default=dict, help_text="agreement with people without and with examples")
    tried_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "few_shot_examples"
        ordering: ClassVar = ["-tried_at", "-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["judge", "procedure", "digest"], name="few_shot_examples_once")
        ]

    def __str__(self) -> str:
        return f"examples {self.digest} for {self.judge} ({self.procedure})"
