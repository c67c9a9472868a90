"""Methods: they make predictions from clients' models, or train with clients in rounds.

All modules of this folder without a leading underscore are imported when a method is needed.
"""
