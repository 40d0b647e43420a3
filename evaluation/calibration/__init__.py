"""How far a judge can be trusted: people label what it scored, and the agreement is shown beside its scores.

`labels` draws judgements and stores what people say, `shown` is what a person sees of one, `label_files` reads and writes files,
`agreement` compares.
"""
