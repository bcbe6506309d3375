"""bench/ — settings, runs, judging, metrics and reports; the sample world. Nothing imports this room."""
