"""Which method should I use? A leaderboard of this project, and no paper: docs/leaderboard.md."""

NAME = "Leaderboard"
