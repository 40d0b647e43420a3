"""What knows no agent: calling models, doing work, the console's and the API's kit, text, operation.

Every other app builds on it; it imports none of them. What it has to know of them they declare (`capability`) or register.
"""
