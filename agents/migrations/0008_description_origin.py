import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0007_worker_deaths")]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="description_origin",
            field=models.CharField(
                blank=True,
                choices=[
                    ("", "not known"),
                    ("seed", "example"),
                    ("import", "import"),
                    ("person", "a person"),
                    ("generated", "generated"),
                ],
                default="",
                help_text="who wrote the description; one that a person wrote is never replaced by a generated one",
                max_length=10,
            ),
        ),
        migrations.CreateModel(
            name="DescriptionUpdate",
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
                ("written", models.BooleanField(default=False, help_text="whether the description was replaced")),
                ("judge", models.CharField(blank=True, default="", help_text="model asked", max_length=200)),
                (
                    "agent",
                    models.ForeignKey(
                        db_index=False,
                        help_text="whose",
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="description_updates",
                        to="agents.agent",
                    ),
                ),
                (
                    "call",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.llmcall",
                    ),
                ),
                (
                    "persona_version",
                    models.ForeignKey(
                        blank=True,
                        help_text="the change that asked for it",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="agents.personaversion",
                    ),
                ),
            ],
            options={
                "db_table": "description_updates",
                "ordering": ["-pk"],
                "indexes": [
                    models.Index(fields=["agent", "created_at", "id"], name="description_of_agent"),
                    models.Index(
                        condition=models.Q(("status__in", ["pending", "running"])),
                        fields=["agent", "created_at", "id"],
                        name="description_open_of_agent",
                    ),
                ],
            },
        ),
    ]
