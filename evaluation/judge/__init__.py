"""The judge: how its prompts are written (`prompts`), what it is asked and how its replies are read (`questions`)."""
