"""Training: the loop, tasks, the run directory, schedules."""
