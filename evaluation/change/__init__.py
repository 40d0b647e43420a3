"""Did an agent change? A baseline and a candidate are compared, followed over time, ranked, and read by position.

`measurements` makes one of the two from evaluations, baselines or a file; `comparison` gives each change with its interval and verdict;
`choosing` picks or measures the two for `manage.py compare`. `overview` ranks agents from sums in the database, `over_time` finds
lasting falls in what schedules measure, `position` looks for fading within conversations, `before_after` judges one trait around a
requested change. `evidence` says which evaluations are the newest, `baselines` which are compared with.
"""
