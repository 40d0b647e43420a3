from decimal import Decimal

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0004_hourly_ledger")]

    operations = [
        migrations.AddField(
            model_name="llmcall",
            name="batch",
            field=models.BooleanField(default=False, help_text="answered in a batch, at the batch price"),
        ),
        migrations.AddField(
            model_name="modelprice",
            name="batch_factor",
            field=models.DecimalField(
                decimal_places=2,
                default=Decimal("0.5"),
                help_text="what a call in a batch costs, as a share of the above",
                max_digits=4,
            ),
        ),
        migrations.CreateModel(
            name="LLMBatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("running", "running"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("errored", "errored"),
                            ("cancelled", "cancelled"),
                            ("paused_budget", "paused (budget)"),
                        ],
                        default="pending",
                        help_text="failed = an expected failure with a reason; errored = a crash, can be resumed",
                        max_length=16,
                    ),
                ),
                (
                    "claimed_by",
                    models.CharField(
                        blank=True, default="", editable=False, help_text="host:pid:token of the owner", max_length=200
                    ),
                ),
                ("lease_expires_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "attempt",
                    models.PositiveIntegerField(default=0, editable=False, help_text="how often this was claimed"),
                ),
                ("error", models.TextField(blank=True, default="", help_text="why it failed, errored or paused")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("work_id", models.CharField(help_text="the work it serves, e.g. evaluation_run:12", max_length=80)),
                (
                    "round",
                    models.PositiveSmallIntegerField(
                        default=1, help_text="the first, second … time this work handed something in"
                    ),
                ),
                ("role", models.CharField(help_text="judge or actor", max_length=12)),
                ("model", models.CharField(max_length=200)),
                ("base_url", models.CharField(help_text="who was given it", max_length=200)),
                (
                    "batch_id",
                    models.CharField(
                        blank=True, default="", help_text="the server's id; empty = not known (yet)", max_length=120
                    ),
                ),
                (
                    "not_ours",
                    models.JSONField(
                        blank=True, default=list, help_text="batches of the server that turned out to be others'"
                    ),
                ),
                (
                    "provider_status",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="in_progress, canceling or ended, as the server says",
                        max_length=16,
                    ),
                ),
                ("requests", models.PositiveIntegerField(default=0, help_text="how many were handed in")),
                (
                    "answered",
                    models.PositiveIntegerField(default=0, help_text="how many were answered, when last looked at"),
                ),
                ("looks", models.PositiveIntegerField(default=0)),
                ("next_look_at", models.DateTimeField(help_text="when to ask the server again")),
                (
                    "expires_at",
                    models.DateTimeField(
                        blank=True, help_text="when the server gives up what is not answered", null=True
                    ),
                ),
                ("cancel_requested_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "LLM batch",
                "verbose_name_plural": "LLM batches",
                "db_table": "llm_batches",
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(fields=["status", "next_look_at"], name="llm_batch_due"),
                    models.Index(fields=["work_id"], name="llm_batch_work"),
                ],
            },
        ),
        migrations.CreateModel(
            name="LLMBatchRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("custom_id", models.CharField(help_text="our name for it", max_length=64, unique=True)),
                ("work_id", models.CharField(max_length=80)),
                (
                    "request_key",
                    models.CharField(help_text="digest of the question and of what it is asked for", max_length=64),
                ),
                ("request_digest", models.CharField(max_length=64)),
                ("label", models.JSONField(help_text="columns of its ledger row")),
                (
                    "result",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("succeeded", "answered"),
                            ("errored", "refused by the server"),
                            ("expired", "not answered within a day"),
                            ("canceled", "cancelled before it was answered"),
                            ("lost", "never reached the server"),
                        ],
                        default="",
                        max_length=12,
                    ),
                ),
                (
                    "text",
                    models.TextField(blank=True, default="", help_text="the answer; emptied when the work has ended"),
                ),
                ("stop_reason", models.CharField(blank=True, default="", max_length=32)),
                ("served_model", models.CharField(blank=True, default="", max_length=200)),
                ("error", models.CharField(blank=True, default="", max_length=500)),
                (
                    "batch",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="rows", to="agents.llmbatch"
                    ),
                ),
                (
                    "call",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="batch_requests",
                        to="agents.llmcall",
                    ),
                ),
            ],
            options={
                "db_table": "llm_batch_requests",
                "ordering": ["pk"],
                "indexes": [models.Index(fields=["work_id"], name="llm_batch_request_work")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("result", "")),
                        fields=("work_id", "request_key"),
                        name="llm_batch_request_once_at_a_time",
                    )
                ],
            },
        ),
    ]
