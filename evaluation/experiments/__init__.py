"""Experiments: the same conversations with and without a treatment, played through the pipeline that serves production.

`scenario` reads what is played, and `problems` says why it cannot be played here. `starting` stores an experiment with its people
(`population`) and environments, `play` plays these as synthetic channels, `outcome` counts what their turns came to, and `measuring` queues
their evaluations. `report` compares the arms (`compare`, `evaluation.statistics.arms`) and says what was gained, harmed and paid.
`published` reads scores of others.

A laboratory of drift is an experiment, too: `lab` makes a scenario that forks a real conversation at a message, with a repair in each arm.
`control_questions` reads what `asking` asks on a copy of each fork that was played, and `repairs` reports which repair works, for how many
turns and at what cost.
"""
