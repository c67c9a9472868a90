"""The synthetic data of the linear regression in the paper P2P."""
