"""Hidden units of several networks put into one order, matched to common units, or fused."""
