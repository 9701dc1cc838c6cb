"""A child process for work that is local, heavy and per record: cleaning partitions, looking at large batches."""
