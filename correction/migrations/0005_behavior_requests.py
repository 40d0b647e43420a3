"""Behaviour requests, and the settings of who may ask for what (specification 002)."""

from decimal import Decimal

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import correction.config.settings


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0007_worker_deaths"),
        ("correction", "0004_worker_deaths"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BehaviorRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
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
                    "status",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("running", "running"),
                            ("no_request", "no request"),
                            ("detected", "detected, no change"),
                            ("applied", "applied"),
                            ("pending_review", "pending review"),
                            ("rejected", "rejected"),
                            ("reverted", "reverted"),
                            ("failed", "failed"),
                            ("errored", "errored"),
                            ("cancelled", "cancelled"),
                            ("paused_budget", "paused (budget)"),
                        ],
                        default="queued",
                        help_text="detected = a request of which no change comes; failed = a model call failed, can be tried again; errored = a crash",
                        max_length=16,
                    ),
                ),
                (
                    "whose",
                    models.BigIntegerField(
                        default=0,
                        editable=False,
                        help_text="key of the agent as it was queued: agents come in turn; never empty",
                    ),
                ),
                (
                    "gate_result",
                    models.JSONField(
                        blank=True, help_text="has_request, confidence, reason; empty = not asked yet", null=True
                    ),
                ),
                (
                    "extract_result",
                    models.JSONField(
                        blank=True,
                        help_text="behavior_name, current_state, requested_change; empty = not asked yet",
                        null=True,
                    ),
                ),
                (
                    "map_result",
                    models.JSONField(
                        blank=True,
                        help_text="the trait as the model would have it; {} = no change needed; empty = not asked yet",
                        null=True,
                    ),
                ),
                (
                    "map_digest",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        help_text="digest of the persona that the map tier was shown; where it is another by now, it is asked again",
                        max_length=64,
                    ),
                ),
                (
                    "judge",
                    models.CharField(
                        blank=True, default="", help_text="model asked; offline ones are heuristic", max_length=200
                    ),
                ),
                (
                    "confidence",
                    models.CharField(
                        blank=True,
                        choices=[("high", "high"), ("medium", "medium"), ("low", "low")],
                        default="",
                        max_length=6,
                    ),
                ),
                (
                    "operation",
                    models.CharField(
                        blank=True,
                        choices=[("add", "add"), ("update", "update"), ("stop", "stop"), ("none", "none")],
                        default="",
                        max_length=6,
                    ),
                ),
                (
                    "trait_name",
                    models.CharField(
                        blank=True, default="", help_text="as it is called after the change", max_length=120
                    ),
                ),
                (
                    "trait_before",
                    models.JSONField(
                        blank=True,
                        help_text="name, description, sentiment, strength; empty = there was none",
                        null=True,
                    ),
                ),
                (
                    "trait_after",
                    models.JSONField(blank=True, help_text="the same after the change, made or proposed", null=True),
                ),
                (
                    "automatic",
                    models.BooleanField(
                        default=False, help_text="applied by itself; counts against the limit of a day"
                    ),
                ),
                (
                    "why",
                    models.TextField(
                        blank=True, default="", help_text="why it waits for a person, or why no change came of it"
                    ),
                ),
                (
                    "warnings",
                    models.JSONField(
                        blank=True, default=list, help_text="what was odd about the answer, a list of texts"
                    ),
                ),
                ("reviewed_at", models.DateTimeField(blank=True, null=True)),
                ("applied_at", models.DateTimeField(blank=True, null=True)),
                ("reverted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        help_text="who was asked; empty when the agent was deleted since",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="behavior_requests",
                        to="agents.agent",
                    ),
                ),
                (
                    "extract_call",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.llmcall",
                    ),
                ),
                (
                    "gate_call",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.llmcall",
                    ),
                ),
                (
                    "map_call",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.llmcall",
                    ),
                ),
                (
                    "message",
                    models.ForeignKey(
                        db_index=False,
                        help_text="where it was asked; empty when the message was deleted since",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="behavior_requests",
                        to="agents.message",
                    ),
                ),
                (
                    "persona_version",
                    models.ForeignKey(
                        blank=True,
                        help_text="what the change made",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.personaversion",
                    ),
                ),
                (
                    "persona_version_before",
                    models.ForeignKey(
                        blank=True,
                        help_text="what the change was made to",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.personaversion",
                    ),
                ),
                (
                    "reviewed_by",
                    models.ForeignKey(
                        blank=True,
                        help_text="who applied, rejected or reverted it last",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "trait",
                    models.ForeignKey(
                        blank=True,
                        help_text="the row that was changed or made; it may have another name by now",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.trait",
                    ),
                ),
            ],
            options={
                "verbose_name": "behaviour request",
                "db_table": "behavior_requests",
                "ordering": ["-pk"],
            },
        ),
        migrations.AddField(
            model_name="agentevaluationconfig",
            name="behavior_auto_apply",
            field=models.CharField(
                blank=True,
                choices=[
                    ("never", "never (a person decides)"),
                    ("high", "high"),
                    ("medium", "medium or high"),
                    ("low", "any"),
                ],
                help_text="least confidence from which a request is applied by itself: high, medium, low, or never (default high); the others wait for a person",
                max_length=8,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="agentevaluationconfig",
            name="behavior_daily_limit",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="requests applied by themselves per day (UTC), 0 to 1000 (default 10); further ones wait for a person",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0),
                    django.core.validators.MaxValueValidator(1000),
                ],
            ),
        ),
        migrations.AddField(
            model_name="agentevaluationconfig",
            name="behavior_named_requesters",
            field=models.JSONField(
                blank=True,
                help_text="user names whose requests count where behavior_requesters is named; exact names",
                null=True,
                validators=[correction.config.settings.validate_names],
            ),
        ),
        migrations.AddField(
            model_name="agentevaluationconfig",
            name="behavior_protected_traits",
            field=models.JSONField(
                blank=True,
                help_text="traits that no message can change, whatever the case of their names",
                null=True,
                validators=[correction.config.settings.validate_names],
            ),
        ),
        migrations.AddField(
            model_name="agentevaluationconfig",
            name="behavior_requesters",
            field=models.CharField(
                blank=True,
                choices=[
                    ("anyone", "anyone, outsiders too"),
                    ("members", "users who are members of the channel"),
                    ("named", "the users named below"),
                ],
                help_text="whose requests count: anyone, members (users who are members of the channel where it was said; outsiders are not) or named (default members)",
                max_length=8,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="agentevaluationconfig",
            name="behavior_requests_enabled",
            field=models.BooleanField(
                blank=True,
                help_text="look for requests to behave differently in what people say to the agent (default on)",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="historicalagentevaluationconfig",
            name="behavior_auto_apply",
            field=models.CharField(
                blank=True,
                choices=[
                    ("never", "never (a person decides)"),
                    ("high", "high"),
                    ("medium", "medium or high"),
                    ("low", "any"),
                ],
                help_text="least confidence from which a request is applied by itself: high, medium, low, or never (default high); the others wait for a person",
                max_length=8,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="historicalagentevaluationconfig",
            name="behavior_daily_limit",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="requests applied by themselves per day (UTC), 0 to 1000 (default 10); further ones wait for a person",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0),
                    django.core.validators.MaxValueValidator(1000),
                ],
            ),
        ),
        migrations.AddField(
            model_name="historicalagentevaluationconfig",
            name="behavior_named_requesters",
            field=models.JSONField(
                blank=True,
                help_text="user names whose requests count where behavior_requesters is named; exact names",
                null=True,
                validators=[correction.config.settings.validate_names],
            ),
        ),
        migrations.AddField(
            model_name="historicalagentevaluationconfig",
            name="behavior_protected_traits",
            field=models.JSONField(
                blank=True,
                help_text="traits that no message can change, whatever the case of their names",
                null=True,
                validators=[correction.config.settings.validate_names],
            ),
        ),
        migrations.AddField(
            model_name="historicalagentevaluationconfig",
            name="behavior_requesters",
            field=models.CharField(
                blank=True,
                choices=[
                    ("anyone", "anyone, outsiders too"),
                    ("members", "users who are members of the channel"),
                    ("named", "the users named below"),
                ],
                help_text="whose requests count: anyone, members (users who are members of the channel where it was said; outsiders are not) or named (default members)",
                max_length=8,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="historicalagentevaluationconfig",
            name="behavior_requests_enabled",
            field=models.BooleanField(
                blank=True,
                help_text="look for requests to behave differently in what people say to the agent (default on)",
                null=True,
            ),
        ),
        migrations.AddConstraint(
            model_name="agentevaluationconfig",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("behavior_auto_apply__isnull", True),
                    ("behavior_auto_apply__in", ["never", "high", "medium", "low"]),
                    _connector="OR",
                ),
                name="config_behavior_auto_apply",
            ),
        ),
        migrations.AddConstraint(
            model_name="agentevaluationconfig",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("behavior_requesters__isnull", True),
                    ("behavior_requesters__in", ["anyone", "members", "named"]),
                    _connector="OR",
                ),
                name="config_behavior_requesters",
            ),
        ),
        migrations.AddConstraint(
            model_name="agentevaluationconfig",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("behavior_daily_limit__isnull", True),
                    models.Q(
                        ("behavior_daily_limit__gte", Decimal("0")), ("behavior_daily_limit__lte", Decimal("1000"))
                    ),
                    _connector="OR",
                ),
                name="config_behavior_daily_limit",
                violation_error_message="behavior_daily_limit: from 0 to 1000, or empty to inherit.",
            ),
        ),
        migrations.AddIndex(
            model_name="behaviorrequest",
            index=models.Index(fields=["agent", "created_at"], name="behavior_agent_created"),
        ),
        migrations.AddIndex(
            model_name="behaviorrequest",
            index=models.Index(fields=["status", "created_at"], name="behavior_status_created"),
        ),
        migrations.AddIndex(
            model_name="behaviorrequest",
            index=models.Index(
                condition=models.Q(("status__in", ["queued", "running"])),
                fields=["whose", "created_at", "id"],
                name="behavior_open_of_whom",
            ),
        ),
        migrations.AddIndex(
            model_name="behaviorrequest",
            index=models.Index(
                condition=models.Q(("automatic", True)),
                fields=["agent", "applied_at"],
                name="behavior_applied_by_itself",
            ),
        ),
        migrations.AddConstraint(
            model_name="behaviorrequest",
            constraint=models.UniqueConstraint(fields=("message", "agent"), name="behavior_request_once"),
        ),
        migrations.AddConstraint(
            model_name="behaviorrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status__in", ["applied", "reverted"]), _negated=True),
                    models.Q(("applied_at__isnull", False), models.Q(("trait_name", ""), _negated=True)),
                    _connector="OR",
                ),
                name="behavior_applied_has_trait",
            ),
        ),
        migrations.AddConstraint(
            model_name="behaviorrequest",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "reverted"), _negated=True), ("reverted_at__isnull", False), _connector="OR"
                ),
                name="behavior_reverted_has_time",
            ),
        ),
    ]
