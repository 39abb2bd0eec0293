"""The training room: the loop, what is trained, the run directory, schedules of a run."""
