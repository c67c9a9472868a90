"""The federation as a method meets it: clients and nodes that train, answer and are counted."""
