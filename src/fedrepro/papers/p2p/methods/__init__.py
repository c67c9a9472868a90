"""Methods on a graph whose nodes hold beliefs, and simulations of what theorem 1 says of them."""
