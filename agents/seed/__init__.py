"""The sixteen example agents and their conversations, as data files, and the service that loads them."""
