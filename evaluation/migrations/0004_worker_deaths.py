import django.db.models.functions.comparison
from django.db import migrations, models
from django.db.models.expressions import CombinedExpression, Value


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0003_batches"), ("agents", "0007_worker_deaths")]

    operations = [
        migrations.AddField(
            model_name="evaluationrun",
            name="deaths",
            field=models.PositiveIntegerField(
                default=0, editable=False, help_text="how many workers in a row were lost with it in hand"
            ),
        ),
        migrations.AddIndex(
            model_name="evaluationrun",
            index=models.Index(
                django.db.models.functions.comparison.Coalesce(
                    models.F("agent_id"), CombinedExpression(models.F("channel_id"), "*", Value(-1))
                ),
                models.F("created_at"),
                models.F("id"),
                condition=models.Q(("status__in", ["pending", "running"])),
                name="evaluation_run_open_of_whom",
            ),
        ),
        migrations.AddField(
            model_name="lineuprun",
            name="deaths",
            field=models.PositiveIntegerField(
                default=0, editable=False, help_text="how many workers in a row were lost with it in hand"
            ),
        ),
    ]
