"""Call stretches of a conversation by position."""

from django.db import migrations, models

HELP = "sampled evenly by position: [first, last] each, last empty = no end; empty = sampled over all"


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0011_propositions")]

    operations = [
        migrations.RenameField("evaluationrun", "turn_bins", "position_bins"),
        migrations.AlterField(
            "evaluationrun", "position_bins", models.JSONField(default=list, blank=True, help_text=HELP)
        ),
    ]
