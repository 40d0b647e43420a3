"""The gate (specification 000, S-7.0): judges a draft before it is sent.

`stage` is the pipeline stage. It has `check` judge the draft on every enabled dimension, stores each attempt, and a draft that fails goes
back to the agent with feedback. `observe` judges messages after they were sent, `quality_check` judges drafts of other programs;
`statistics` and `thresholds` read the logs.
"""
