"""The judge: `questions` has what it is shown and asked, and how its replies are read.

`offline` answers where there is no model at all. `identity` says who a judge really is.
"""
