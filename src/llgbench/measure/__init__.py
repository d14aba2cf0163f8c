"""Time, count and judge one configuration."""
