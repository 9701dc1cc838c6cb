"""Side by side in one run: the bare loop, tierd, and a real Kafka. `make bench`, or `python -m bench --help`."""
