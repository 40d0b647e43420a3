from decimal import Decimal

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0006_workers")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="deaths",
            field=models.PositiveIntegerField(
                default=0, editable=False, help_text="how many workers in a row were lost with it in hand"
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status__in", ["pending", "running"])),
                fields=["agent", "created_at", "id"],
                name="run_open_of_agent",
            ),
        ),
        migrations.AddField(
            model_name="llmbatch",
            name="deaths",
            field=models.PositiveIntegerField(
                default=0, editable=False, help_text="how many workers in a row were lost with it in hand"
            ),
        ),
        migrations.AddField(
            model_name="llmbatch",
            name="presumed",
            field=models.BooleanField(
                default=False,
                help_text="found by its size after its name was lost: ours only once its results are seen",
            ),
        ),
        migrations.AddField(
            model_name="llmbatch",
            name="agent",
            field=models.ForeignKey(
                blank=True,
                help_text="who is asked about; empty = nobody",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="agents.agent",
            ),
        ),
        migrations.AddField(
            model_name="llmbatch",
            name="planned_usd",
            field=models.DecimalField(
                decimal_places=8,
                default=Decimal(0),
                help_text="US dollars it is expected to cost: budgets count it while it is open",
                max_digits=14,
            ),
        ),
    ]
