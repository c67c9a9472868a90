"""A user's own models, data and methods: read, combined, evaluated, checked."""
