"""What holds for every test: a shell starts what runs in its background with SIGINT ignored, and children inherit that."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
