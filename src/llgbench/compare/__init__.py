"""Two engines compared: the job, the processes, the inference."""
