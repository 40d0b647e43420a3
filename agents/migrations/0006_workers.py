from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0005_batches")]

    operations = [
        migrations.CreateModel(
            name='Chore',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('path', models.CharField(help_text='dotted path of the callable', max_length=200, unique=True)),
                ('next_at', models.DateTimeField()),
                ('last_at', models.DateTimeField(blank=True, null=True)),
                ('last_outcome', models.CharField(blank=True, default='', max_length=500)),
            ],
            options={
                'db_table': 'work_chores',
                'ordering': ['path'],
            },
        ),
        migrations.CreateModel(
            name='WorkerHeartbeat',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='host:pid:token', max_length=200, unique=True)),
                ('host', models.CharField(max_length=200)),
                ('pid', models.PositiveIntegerField()),
                ('kind', models.CharField(choices=[('work', 'manage.py work'), ('celery', 'Celery worker')], max_length=8)),
                ('queues', models.CharField(blank=True, default='', help_text='what it works on', max_length=500)),
                ('doing', models.CharField(blank=True, default='', help_text='the queue of what it has in hand', max_length=80)),
                ('done', models.PositiveBigIntegerField(default=0, help_text='pieces of work since it started')),
                ('slots_in_use', models.PositiveIntegerField(default=0, help_text='model calls in flight')),
                ('slots', models.PositiveIntegerField(default=0, help_text='model calls that may be in flight')),
                ('started_at', models.DateTimeField()),
                ('seen_at', models.DateTimeField(db_index=True)),
                ('stopped_at', models.DateTimeField(blank=True, help_text='when it said that it stops', null=True)),
            ],
            options={
                'verbose_name': 'worker',
                'db_table': 'worker_heartbeats',
                'ordering': ['-seen_at', '-pk'],
            },
        ),
        migrations.CreateModel(
            name='LastServed',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(help_text='table of the work', max_length=64)),
                ('whose', models.BigIntegerField(help_text='the agent, or minus the channel')),
                ('at', models.DateTimeField()),
            ],
            options={
                'db_table': 'work_last_served',
                'constraints': [models.UniqueConstraint(fields=('kind', 'whose'), name='work_last_served_unique')],
            },
        ),
    ]
