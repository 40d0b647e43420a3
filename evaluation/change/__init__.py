"""Did an agent change? A baseline and a candidate are measured, compared, and what changed is stored and read.

In this order data passes through, and the modules are read:

* **Measure**: `measurements` makes a `Measurement` of evaluations or baselines, `measurement_files` of a JSON file.
* **Choose**: `evidence` says which evaluations are the newest, and measures them and the baselines they are compared with; `choosing`
  picks, or has measured, what `manage.py compare` and the page that compares are asked for.
* **Compare**: `change` turns two samples of verdicts into a `ChangeResult`; `comparison` has one per dimension and proposition.
* **Store**: when an evaluation ends, `stored` compares its agent with its baselines and keeps the results as rows (`models.Change`);
  `examples` adds messages that show them.
* **Read**: `overview` ranks agents by their rows, `sentences` puts each into words; the admin, the API and the commands show them.

Beside that, `over_time` detects lasting falls in what schedules measure and raises alerts, `history` reads scores for charts, and
`position` looks for fading within conversations.
"""
