"""What ASV calls, what ASV wrote, and what has become slower over commits."""
