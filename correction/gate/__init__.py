"""The gate (specification 000, S-7.0): judges a draft before it is sent.

`stage` is the pipeline stage. `plan` chooses what is checked, `actions` reads what the draft is judged by, `check` judges it on every
enabled dimension, and `results` combines what rules and judge say. `sessions` stores each attempt; a draft that fails goes back to the
agent with feedback. `observe` judges messages after they were sent, `quality_check` judges drafts of other programs; `statistics` and
`thresholds` read the logs.
"""
