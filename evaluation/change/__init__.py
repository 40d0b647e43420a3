"""Did an agent change? A baseline and a candidate are measured, compared, and what changed is stored and read.

In this order data passes through, and the modules are read:

* **Measure**: `judgements` reads what an evaluation judged, `measurements` makes a `Measurement` of evaluations or baselines of it, and
  `measurement_files` of a JSON file. `measured` has the values: a proposition, a dimension.
* **Choose**: `evidence` keeps baselines, says which evaluations are the newest, and measures both; `choosing` picks, or has measured,
  what `manage.py compare` and the page that compares are asked for.
* **Compare**: `change` turns two samples of verdicts into a `ChangeResult`. `dimension_pair` does so for a dimension and its
  propositions, `lost` finds where too little is still scored, `comparison` puts all of it together, and `detection` says how small a
  change it could detect.
* **Store**: when an evaluation ends, `stored` compares its agent with its baselines and keeps the results as rows (`models.Change`);
  `examples` adds messages that show them.
* **Read**: `overview` ranks agents by their rows, `sentences` puts each into words; the admin, the API and the commands show them.

Beside that, `over_time` detects lasting falls in what schedules measure and raises alerts, `history` reads scores for charts, and
`position` looks for fading within conversations.
"""
