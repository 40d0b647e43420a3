from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0002_five_dimensions"), ("agents", "0005_batches")]

    operations = [
        migrations.AddField(
            model_name="evaluationrun",
            name="batch",
            field=models.BooleanField(
                default=False, help_text="the judge is asked in batches: half the price, an answer within a day"
            ),
        ),
        migrations.AddField(
            model_name="evaluationschedule",
            name="batch",
            field=models.BooleanField(
                default=False, help_text="ask the judge in batches: half the price, an answer within a day"
            ),
        ),
    ]
