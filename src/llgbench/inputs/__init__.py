"""What is measured, as data."""
