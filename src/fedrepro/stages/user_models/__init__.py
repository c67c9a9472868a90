"""Own models, data and methods: read, combined, compared, checked."""
