"""May a judge be used? Its passport, shown beside its scores: agreement with people who labelled them, swap test, order test.

`labels` draws judgements and stores what people say, `shown` is what a person sees of one, `label_files` reads and writes files,
`agreement` compares, and `stored` keeps what it says in a row. `swap_test` says how well a judge distinguishes own words from those of
others, `order_test` whether it matters what else is asked. `passport` decides from the stored row.
"""
