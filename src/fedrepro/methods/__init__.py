"""Methods: from clients' models, or clients in rounds, to predictions.

Files are found on import.
"""
