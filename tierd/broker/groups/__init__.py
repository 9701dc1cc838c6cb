"""The classic group protocol: who is in a consumer group, who reads what, and how far each has come."""
