"""The training room: tasks, the loop, checkpoints, schedules, summaries."""
