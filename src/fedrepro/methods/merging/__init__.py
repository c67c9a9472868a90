"""Networks of one start merged into one."""
