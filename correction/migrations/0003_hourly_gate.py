import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0004_hourly_ledger"), ("correction", "0002_external_checks")]

    operations = [
        migrations.CreateModel(
            name='AttemptSum',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(1, 'hour'), (2, 'day'), (3, 'month')])),
                ('start', models.DateTimeField()),
                ('source', models.CharField(max_length=8)),
                ('played', models.BooleanField(help_text='of synthetic channels, as they were when this was summed')),
                ('outcome', models.CharField(max_length=20)),
                ('attempts', models.BigIntegerField()),
                ('firsts', models.BigIntegerField(help_text='of them first drafts')),
                ('firsts_judged', models.BigIntegerField(help_text='of those, judged on at least one dimension')),
                ('failed', models.BigIntegerField(help_text='attempts that failed at least one dimension')),
            ],
            options={
                'db_table': 'correction_attempt_sums',
            },
        ),
        migrations.CreateModel(
            name='AttemptTotal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(1, 'hour'), (2, 'day'), (3, 'month')])),
                ('start', models.DateTimeField()),
                ('source', models.CharField(max_length=8)),
                ('played', models.BooleanField(help_text='of synthetic channels, as they were when this was summed')),
                ('outcome', models.CharField(max_length=20)),
                ('attempts', models.BigIntegerField()),
                ('firsts', models.BigIntegerField(help_text='of them first drafts')),
                ('firsts_judged', models.BigIntegerField(help_text='of those, judged on at least one dimension')),
                ('failed', models.BigIntegerField(help_text='attempts that failed at least one dimension')),
            ],
            options={
                'db_table': 'correction_attempt_totals',
            },
        ),
        migrations.CreateModel(
            name='DimensionSum',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(1, 'hour'), (2, 'day'), (3, 'month')])),
                ('start', models.DateTimeField()),
                ('source', models.CharField(max_length=8)),
                ('played', models.BooleanField(help_text='of synthetic channels, as they were when this was summed')),
                ('dimension', models.CharField(max_length=32)),
                ('judge', models.CharField(max_length=200)),
                ('checks', models.BigIntegerField()),
                ('scored', models.BigIntegerField()),
                ('failures', models.BigIntegerField()),
                ('first_failures', models.BigIntegerField()),
                ('score_sum', models.FloatField()),
                ('first_scored', models.BigIntegerField()),
                ('first_score_sum', models.FloatField()),
                ('committed_scored', models.BigIntegerField()),
                ('committed_score_sum', models.FloatField()),
                ('were_timeout', models.BigIntegerField()),
                ('were_overload', models.BigIntegerField()),
                ('were_error', models.BigIntegerField()),
                ('were_unscored', models.BigIntegerField()),
                ('were_budget', models.BigIntegerField()),
            ],
            options={
                'db_table': 'correction_dimension_sums',
            },
        ),
        migrations.CreateModel(
            name='DimensionTotal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(1, 'hour'), (2, 'day'), (3, 'month')])),
                ('start', models.DateTimeField()),
                ('source', models.CharField(max_length=8)),
                ('played', models.BooleanField(help_text='of synthetic channels, as they were when this was summed')),
                ('dimension', models.CharField(max_length=32)),
                ('judge', models.CharField(max_length=200)),
                ('checks', models.BigIntegerField()),
                ('scored', models.BigIntegerField()),
                ('failures', models.BigIntegerField()),
                ('first_failures', models.BigIntegerField()),
                ('score_sum', models.FloatField()),
                ('first_scored', models.BigIntegerField()),
                ('first_score_sum', models.FloatField()),
                ('committed_scored', models.BigIntegerField()),
                ('committed_score_sum', models.FloatField()),
                ('were_timeout', models.BigIntegerField()),
                ('were_overload', models.BigIntegerField()),
                ('were_error', models.BigIntegerField()),
                ('were_unscored', models.BigIntegerField()),
                ('were_budget', models.BigIntegerField()),
            ],
            options={
                'db_table': 'correction_dimension_totals',
            },
        ),
        migrations.AlterField(
            model_name='correctionlog',
            name='agent',
            field=models.ForeignKey(blank=True, db_index=False, help_text='empty for an external check with a persona of its own', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='correction_logs', to='agents.agent'),
        ),
        migrations.AddIndex(
            model_name='correctionlog',
            index=models.Index(fields=['outcome', 'created_at'], name='correction_outcome_created'),
        ),
        migrations.AddIndex(
            model_name='correctionlog',
            index=models.Index(fields=['source', 'created_at'], name='correction_source_created'),
        ),
        migrations.AddField(
            model_name='attemptsum',
            name='agent',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.agent'),
        ),
        migrations.AddIndex(
            model_name='attempttotal',
            index=models.Index(fields=['span', 'start'], name='attempt_total_start'),
        ),
        migrations.AddField(
            model_name='dimensionsum',
            name='agent',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.agent'),
        ),
        migrations.AddIndex(
            model_name='dimensiontotal',
            index=models.Index(fields=['span', 'start'], name='dimension_total_start'),
        ),
        migrations.AddIndex(
            model_name='attemptsum',
            index=models.Index(fields=['span', 'start'], name='attempt_sum_start'),
        ),
        migrations.AddIndex(
            model_name='attemptsum',
            index=models.Index(fields=['agent', 'span', 'start'], name='attempt_sum_agent'),
        ),
        migrations.AddIndex(
            model_name='dimensionsum',
            index=models.Index(fields=['span', 'start'], name='dimension_sum_start'),
        ),
        migrations.AddIndex(
            model_name='dimensionsum',
            index=models.Index(fields=['agent', 'span', 'start'], name='dimension_sum_agent'),
        ),
    ]
