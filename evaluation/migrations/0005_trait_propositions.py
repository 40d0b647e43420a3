from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0004_worker_deaths")]

    operations = [
        migrations.AddField(
            model_name="evaluationscore",
            name="over_window",
            field=models.BooleanField(
                default=False,
                help_text="adherence of a whole window: it never was about one message, and none was deleted",
            ),
        ),
    ]
