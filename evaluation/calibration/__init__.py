"""How far a judge can be trusted: people label what it scored, and the agreement is shown beside its scores.

`population` draws judgements, `shown` is what a person sees of one, `labels` and `label_files` store what people say, `agreement` compares.
"""
