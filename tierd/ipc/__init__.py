"""Talking to a child process: messages with descriptors over a socket pair, calls, and keeping the child running."""
