from django.db import migrations, models

OUTCOMES = [
    ("passed", "passed"),
    ("corrected", "sent back with feedback"),
    ("passed_after_retry", "passed after retry"),
    ("forced_through", "forced through (best attempt sent)"),
    ("timeout_passed", "passed: judged too late"),
    ("overload_passed", "passed: judge overloaded"),
    ("error_passed", "passed: judge failed"),
    ("unscored_passed", "passed: could not be judged"),
    ("budget_passed", "passed: budget used up"),
    ("observed", "observed (sent before it was judged)"),
    ("abandoned", "abandoned by the agent"),
]
STATUSES = [
    ("scored", "scored"),
    ("trivial", "trivial"),
    ("unscored", "unscored"),
    ("timeout", "too late"),
    ("overload", "judge overloaded"),
    ("error", "judge failed"),
    ("budget", "budget used up"),
]


class Migration(migrations.Migration):
    dependencies = [("correction", "0008_convergence_threshold")]

    operations = [
        migrations.AlterField("correctionlog", "outcome", models.CharField(choices=OUTCOMES, max_length=20)),
        migrations.AlterField("gatedimensionresult", "status", models.CharField(choices=STATUSES, max_length=10)),
    ]
