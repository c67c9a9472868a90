"""Which method should I use? A leaderboard of this project, not of a paper: docs/leaderboard.md."""

NAME = "Leaderboard"
