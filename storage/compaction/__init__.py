"""Compaction of a partition's closed segments: pure rules, files, and nothing of processes.

`plan` decides what to clean, `cleaner` makes `.cleaned` files of it (in the worker's process), `swap` puts them in the
place of what they were made of (on the broker's loop). The rules are Kafka's (ENGINE.md, "Compaction").
"""
