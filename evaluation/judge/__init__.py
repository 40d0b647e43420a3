"""The judge: what it is shown, what it is asked, and what its answers mean."""
