"""The data of the regression that the paper draws its nodes from."""
