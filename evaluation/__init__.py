"""Measuring how far agents have drifted from their personas.

`propositions` reads the claims that are judged. A run (`runs`) plans which claim is judged on which messages, as the scorer of each
dimension says (`scorers`), has the `judge` score them, and sums up the scores. When it ends, `change` compares it with the baseline and
stores what changed.

`calibration` finds out how far a judge can be trusted, `drafting` suggests and edits propositions, `simulation` makes conversations to
measure, `experiments` compares arms, and `ci` gives a build its verdict. `correction` lies above, and nothing here imports it.
"""
