"""One table of sums per kind of row, by hour. Days and totals of all agents were made of its hours and are added up when they are read."""

from django.db import migrations, models


def drop_days(apps, schema_editor):
    for name in ("AttemptSum", "DimensionSum"):
        apps.get_model("correction", name).objects.exclude(span=1).delete()


def hours(old, new, table, index):
    return [
        migrations.RemoveIndex(old.lower(), f"{index}_sum_start"),
        migrations.RemoveIndex(old.lower(), f"{index}_sum_agent"),
        migrations.RemoveField(old.lower(), "span"),
        migrations.RenameField(old.lower(), "start", "hour"),
        migrations.RenameField(old.lower(), "played", "synthetic"),
        migrations.RenameModel(old, new),
        migrations.AlterModelTable(new.lower(), table),
        migrations.AddIndex(new.lower(), models.Index(fields=["hour"], name=f"{index}_hour")),
        migrations.AddIndex(new.lower(), models.Index(fields=["agent", "hour"], name=f"{index}_hour_agent")),
    ]


class Migration(migrations.Migration):
    dependencies = [("correction", "0009_judge_overloaded")]

    operations = [
        migrations.DeleteModel("AttemptTotal"),
        migrations.DeleteModel("DimensionTotal"),
        migrations.RunPython(drop_days, migrations.RunPython.noop, elidable=True),
        *hours("AttemptSum", "AttemptHour", "correction_attempt_hours", "attempt"),
        *hours("DimensionSum", "DimensionHour", "correction_dimension_hours", "dimension"),
    ]
