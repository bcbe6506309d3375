"""`make test-offline`: the benchmark, the pipeline, the video path and vLLM with loopback only, under three watches."""
