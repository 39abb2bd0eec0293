"""From the gradients of a step to moved weights: schedules, groups, noise, means."""
