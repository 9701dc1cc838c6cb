"""A bucket that is only read: what it holds is found by LIST again and again, and shown to the broker."""
