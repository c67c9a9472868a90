"""fedrepro: which way of combining models trained on separate data works, and at what cost."""

__version__ = "0.1.0"
