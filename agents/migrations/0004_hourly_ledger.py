import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0003_idempotent_requests")]

    operations = [
        migrations.CreateModel(
            name='LedgerAgentTotal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(1, 'hour'), (2, 'day'), (3, 'month')])),
                ('start', models.DateTimeField()),
                ('calls', models.BigIntegerField()),
                ('unpriced', models.BigIntegerField(help_text='calls without a price, not in cost_usd')),
                ('input_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('cache_read_tokens', models.BigIntegerField()),
                ('cache_write_tokens', models.BigIntegerField()),
                ('cost_usd', models.DecimalField(decimal_places=8, max_digits=20)),
                ('latency_ms', models.BigIntegerField()),
            ],
            options={
                'db_table': 'ledger_agent_totals',
            },
        ),
        migrations.CreateModel(
            name='LedgerSum',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(1, 'hour'), (2, 'day'), (3, 'month')])),
                ('start', models.DateTimeField()),
                ('calls', models.BigIntegerField()),
                ('unpriced', models.BigIntegerField(help_text='calls without a price, not in cost_usd')),
                ('input_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('cache_read_tokens', models.BigIntegerField()),
                ('cache_write_tokens', models.BigIntegerField()),
                ('cost_usd', models.DecimalField(decimal_places=8, max_digits=20)),
                ('latency_ms', models.BigIntegerField()),
                ('purpose', models.CharField(max_length=64)),
                ('mechanism', models.CharField(max_length=64)),
                ('dimension', models.CharField(max_length=32)),
                ('model', models.CharField(max_length=200)),
                ('role', models.CharField(max_length=12)),
                ('provider', models.CharField(max_length=16)),
                ('status', models.CharField(max_length=12)),
            ],
            options={
                'db_table': 'ledger_sums',
            },
        ),
        migrations.CreateModel(
            name='LedgerTotal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('span', models.PositiveSmallIntegerField(choices=[(1, 'hour'), (2, 'day'), (3, 'month')])),
                ('start', models.DateTimeField()),
                ('calls', models.BigIntegerField()),
                ('unpriced', models.BigIntegerField(help_text='calls without a price, not in cost_usd')),
                ('input_tokens', models.BigIntegerField()),
                ('output_tokens', models.BigIntegerField()),
                ('cache_read_tokens', models.BigIntegerField()),
                ('cache_write_tokens', models.BigIntegerField()),
                ('cost_usd', models.DecimalField(decimal_places=8, max_digits=20)),
                ('latency_ms', models.BigIntegerField()),
                ('purpose', models.CharField(max_length=64)),
                ('mechanism', models.CharField(max_length=64)),
                ('dimension', models.CharField(max_length=32)),
                ('model', models.CharField(max_length=200)),
                ('role', models.CharField(max_length=12)),
                ('provider', models.CharField(max_length=16)),
                ('status', models.CharField(max_length=12)),
            ],
            options={
                'db_table': 'ledger_totals',
            },
        ),
        migrations.CreateModel(
            name='Rollup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='what is summed: ledger, or gate', max_length=32, unique=True)),
                ('closed_before', models.DateTimeField(blank=True, help_text='whole hours before this are summed up; later rows are read themselves', null=True)),
                ('seen_pk', models.BigIntegerField(default=0, help_text='newest row when hours were last closed')),
                ('older_pk', models.BigIntegerField(default=0, help_text='newest row the time before; rows after it are looked at again, for late ones')),
                ('claimed_by', models.CharField(blank=True, default='', help_text='host:pid:token of the owner', max_length=200)),
                ('lease_expires_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'db_table': 'rollups',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='StaleHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=32)),
                ('hour', models.DateTimeField()),
            ],
            options={
                'db_table': 'rollup_stale_hours',
                'ordering': ['pk'],
            },
        ),
        migrations.AlterField(
            model_name='llmcall',
            name='agent',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='llm_calls', to='agents.agent'),
        ),
        migrations.AlterField(
            model_name='llmcall',
            name='request_digest',
            field=models.CharField(blank=True, default='', help_text='key for replay', max_length=64),
        ),
        migrations.AlterField(
            model_name='llmcall',
            name='work_id',
            field=models.CharField(blank=True, default='', help_text='the work it served, e.g. evaluation_run:12', max_length=80),
        ),
        migrations.AddIndex(
            model_name='llmcall',
            index=models.Index(fields=['work_id'], name='llm_call_work'),
        ),
        migrations.AddIndex(
            model_name='llmcall',
            index=models.Index(fields=['request_digest'], name='llm_call_digest'),
        ),
        migrations.AddField(
            model_name='ledgeragenttotal',
            name='agent',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.agent'),
        ),
        migrations.AddField(
            model_name='ledgersum',
            name='agent',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.agent'),
        ),
        migrations.AddIndex(
            model_name='ledgertotal',
            index=models.Index(fields=['span', 'start'], name='ledger_total_start'),
        ),
        migrations.AddIndex(
            model_name='ledgeragenttotal',
            index=models.Index(fields=['span', 'start'], name='ledger_agent_total_start'),
        ),
        migrations.AddIndex(
            model_name='ledgeragenttotal',
            index=models.Index(fields=['agent', 'span', 'start'], name='ledger_agent_total_agent'),
        ),
        migrations.AddIndex(
            model_name='ledgersum',
            index=models.Index(fields=['span', 'start'], name='ledger_sum_start'),
        ),
        migrations.AddIndex(
            model_name='ledgersum',
            index=models.Index(fields=['agent', 'span', 'start'], name='ledger_sum_agent'),
        ),
    ]
