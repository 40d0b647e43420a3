"""One table of sums, by hour. Days, months and totals of all agents were made of its hours and are added up when they are read."""

from django.db import migrations, models


def drop_days(apps, schema_editor):
    apps.get_model("agents", "LedgerSum").objects.exclude(span=1).delete()


class Migration(migrations.Migration):
    dependencies = [("agents", "0011_agent_origin")]

    operations = [
        migrations.DeleteModel("LedgerAgentTotal"),
        migrations.DeleteModel("LedgerTotal"),
        migrations.DeleteModel("StaleHour"),
        migrations.RunPython(drop_days, migrations.RunPython.noop, elidable=True),
        migrations.RemoveIndex("ledgersum", "ledger_sum_start"),
        migrations.RemoveIndex("ledgersum", "ledger_sum_agent"),
        migrations.RemoveField("ledgersum", "span"),
        migrations.RenameField("ledgersum", "start", "hour"),
        migrations.RenameModel("LedgerSum", "LedgerHour"),
        migrations.AlterModelTable("ledgerhour", "ledger_hours"),
        migrations.AddIndex("ledgerhour", models.Index(fields=["hour"], name="ledger_hour")),
        migrations.AddIndex("ledgerhour", models.Index(fields=["agent", "hour"], name="ledger_hour_agent")),
        migrations.RemoveField("rollup", "claimed_by"),
        migrations.RemoveField("rollup", "lease_expires_at"),
        migrations.RemoveField("rollup", "older_pk"),
        migrations.RemoveField("rollup", "seen_pk"),
    ]
