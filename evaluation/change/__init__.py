"""Did an agent change? A baseline and a candidate are compared, followed over time, ranked, and read by position.

`measurements` makes one of the two from evaluations, baselines or a file; `change` turns two samples of verdicts into a `ChangeResult`,
and everything else rests on it: `comparison` has one per dimension and proposition, `position` looks for fading within conversations,
`before_after` judges one trait around a requested change. `evidence` says which evaluations are the newest and which are compared with;
when one ends, `stored` compares it and keeps the results as rows (`Change`), which `overview` ranks and every page reads. `choosing`
picks or measures the two for `manage.py compare`. `over_time` detects lasting falls in what schedules measure, and reads histories for
charts.
"""
