from typing import Any

from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def say_whose(apps: Any, schema_editor: Any) -> None:
    """Of what waits; nobody asks of what is over."""
    observed = apps.get_model("correction", "ObservedMessage").objects
    messages = apps.get_model("agents", "Message").objects.filter(pk=OuterRef("message_id"), agent_id__isnull=False)
    waiting = observed.filter(status__in=("pending", "running"), message__agent_id__isnull=False)
    waiting.update(whose=Subquery(messages.values("agent_id")))


class Migration(migrations.Migration):
    dependencies = [("correction", "0003_hourly_gate"), ("agents", "0007_worker_deaths")]

    operations = [
        migrations.AddField(
            model_name="observedmessage",
            name="deaths",
            field=models.PositiveIntegerField(
                default=0, editable=False, help_text="how many workers in a row were lost with it in hand"
            ),
        ),
        migrations.AddField(
            model_name="observedmessage",
            name="whose",
            field=models.BigIntegerField(
                default=0,
                editable=False,
                help_text="who said it, as it was queued: agents come in turn; 0 = nobody",
            ),
        ),
        migrations.RunPython(say_whose, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="observedmessage",
            index=models.Index(
                condition=models.Q(("status__in", ["pending", "running"])),
                fields=["whose", "created_at", "id"],
                name="observed_open_of_whom",
            ),
        ),
    ]
