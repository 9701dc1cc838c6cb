"""A child process for work that is local, heavy and per record: so far the cleaning of compacted partitions."""
