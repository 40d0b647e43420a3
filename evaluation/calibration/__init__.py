"""How far a judge can be trusted, shown beside its scores: its agreement with people who labelled them, and its swap test.

`labels` draws judgements and stores what people say, `shown` is what a person sees of one, `label_files` reads and writes files,
`agreement` compares. `swap_test` says how well own words and those of others are told apart.
"""
