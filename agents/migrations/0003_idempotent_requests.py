import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0002_turns"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="IdempotentRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.CharField(max_length=255)),
                ("method", models.CharField(max_length=8)),
                ("path", models.TextField(help_text="with the query")),
                (
                    "body_digest",
                    models.CharField(help_text="SHA-256 of the body as JSON with sorted keys", max_length=64),
                ),
                (
                    "status",
                    models.PositiveSmallIntegerField(
                        blank=True, help_text="of the answer; null = still running", null=True
                    ),
                ),
                ("answer", models.TextField(blank=True, default="", help_text="the answer's JSON")),
                ("headers", models.JSONField(blank=True, default=dict, help_text="of the answer, such as Location")),
                (
                    "claimed_by",
                    models.CharField(blank=True, default="", help_text="host:pid:token of who runs it", max_length=200),
                ),
                ("claimed_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "indexes": [models.Index(fields=["created_at"], name="idempotent_created")],
                "constraints": [models.UniqueConstraint(fields=("user", "key"), name="idempotent_once_per_user")],
            },
        ),
    ]
