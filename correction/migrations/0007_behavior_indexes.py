from django.db import migrations, models
from django.db.models.functions import Lower


class Migration(migrations.Migration):
    dependencies = [("correction", "0006_behavior_effects")]

    operations = [
        migrations.AddIndex(
            model_name="behaviorrequest",
            index=models.Index(fields=["created_at", "id"], name="behavior_created"),
        ),
        migrations.AddIndex(
            model_name="behaviorrequest",
            index=models.Index(fields=["agent", "status", "applied_at"], name="behavior_agent_status"),
        ),
        migrations.AddIndex(
            model_name="behaviorrequest",
            index=models.Index(
                Lower("trait_name"),
                models.F("created_at"),
                condition=models.Q(("trait_name", ""), _negated=True),
                name="behavior_trait_created",
            ),
        ),
    ]
