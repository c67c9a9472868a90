"""From measured metrics to the tables behind figures: selection, means, intervals, leaderboards."""
