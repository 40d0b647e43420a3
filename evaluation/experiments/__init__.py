"""Experiments: the same conversations with and without a treatment, played through the pipeline that serves production.

`scenario` reads what is played, and `problems` says why it cannot be played here. `starting` stores an experiment with its people
(`population`) and environments, `play` plays these as synthetic channels, `outcome` counts what their turns came to, and `measuring` queues
their evaluations. `report` compares the arms (`compare`, `evaluation.statistics.arms`) and says what was gained, harmed and paid.
`published` reads scores of others.
"""
