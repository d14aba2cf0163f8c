"""Pages and pictures made from stored data."""
