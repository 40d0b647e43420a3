from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("correction", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="correctionlog",
            name="speaker",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="who spoke, where it is no agent of ours",
                max_length=120,
            ),
        ),
        migrations.AddField(
            model_name="correctionlog",
            name="tags",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                help_text="what another program said of its draft: key -> value, both texts",
            ),
        ),
    ]
