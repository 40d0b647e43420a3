"""Experiments: the same conversations with and without a treatment, played through the pipeline that serves production.

`scenario` reads what is played; `population` makes the agents; `play` starts an experiment, plays its environments as synthetic channels
and queues their evaluations; `report` compares the arms (`evaluation.statistics.arms`) and says what was gained, harmed and paid.
`published` reads scores of others.
"""
