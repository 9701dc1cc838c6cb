"""The consumer group protocol of KIP-848: members only send heartbeats, the broker says who reads what."""
