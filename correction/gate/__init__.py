"""The gate (specification 000, S-7.0): judges a draft before it is sent.

`stage` is the pipeline stage. It has `plan` choose what is checked, `actions` read what the draft is judged by, and `check` judge it on every
enabled dimension; `results` combines what rules and judge say. Each attempt is stored, and a draft that fails goes back to the agent with
feedback. `observe` judges messages after they were sent, `quality_check` judges drafts of other programs;
`statistics` and `thresholds` read the logs.
"""
