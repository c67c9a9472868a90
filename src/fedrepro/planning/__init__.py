"""Planning, in pure Python: from the configuration to figures, their runs, and jobs (processes)."""
