"""Training: one loop, its optimisers and schedules, checkpoints and logs."""
