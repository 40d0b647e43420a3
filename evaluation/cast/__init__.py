"""Who went flat, and in what: each agent then and now, in one sentence made from its scores."""
