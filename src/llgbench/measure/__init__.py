"""Times and judges configurations, in worker processes that a supervisor outlives."""
