"""The judge: what it is shown and asked, how its replies are read."""
