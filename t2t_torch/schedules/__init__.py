"""Registry folder: learning-rate schedules, the factors of `learning_rate_schedule`."""
