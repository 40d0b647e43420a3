"""Rename the columns of a lease from "claim" words."""

from django.db import migrations, models

MODELS = ("descriptionupdate", "import", "llmbatch", "run")
ATTEMPT = models.PositiveIntegerField(default=0, editable=False, help_text="how often this was leased")


class Migration(migrations.Migration):
    dependencies = [("agents", "0012_hourly_sums")]

    operations = [
        *(migrations.RenameField(name, "claimed_by", "lease_owner") for name in MODELS),
        *(migrations.AlterField(name, "attempt", ATTEMPT) for name in MODELS),
        migrations.RenameField("idempotentrequest", "claimed_by", "lease_owner"),
        migrations.RenameField("idempotentrequest", "claimed_at", "leased_at"),
    ]
