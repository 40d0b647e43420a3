"""Evaluations of what applied behaviour requests changed."""

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("correction", "0005_behavior_requests"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BehaviorEffect",
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
                (
                    "deaths",
                    models.PositiveIntegerField(
                        default=0, editable=False, help_text="how many workers in a row were lost with it in hand"
                    ),
                ),
                ("error", models.TextField(blank=True, default="", help_text="why it failed, errored or paused")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                (
                    "whose",
                    models.BigIntegerField(
                        default=0,
                        editable=False,
                        help_text="key of the agent as it was queued: agents come in turn; never empty",
                    ),
                ),
                (
                    "messages",
                    models.PositiveSmallIntegerField(
                        default=10,
                        help_text="most messages of each side, 1 to 100",
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(100),
                        ],
                    ),
                ),
                ("judge", models.CharField(help_text="model asked, as configured when it was queued", max_length=200)),
                (
                    "result",
                    models.JSONField(
                        blank=True,
                        help_text="means, difference with interval, verdict, each message's score; empty = not judged",
                        null=True,
                    ),
                ),
                (
                    "request",
                    models.ForeignKey(
                        db_index=False,
                        help_text="what was applied",
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="effects",
                        to="correction.behaviorrequest",
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
                        blank=True,
                        help_text="who asked for it",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "effect of a behaviour request",
                "verbose_name_plural": "effects of behaviour requests",
                "db_table": "behavior_effects",
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(fields=["request", "created_at"], name="effect_of_request"),
                    models.Index(
                        condition=models.Q(("status__in", ["pending", "running"])),
                        fields=["whose", "created_at", "id"],
                        name="effect_open_of_whom",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("status__in", ["pending", "running", "paused_budget"])),
                        fields=("request",),
                        name="effect_one_unfinished",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("messages__gte", 1), ("messages__lte", 100)), name="effect_messages"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "completed"), _negated=True), ("result__isnull", False), _connector="OR"
                        ),
                        name="effect_completed_has_result",
                    ),
                ],
            },
        ),
    ]
