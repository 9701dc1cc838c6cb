"""Stands for the package that starts brokers for confluent-kafka's tests: here one runs already."""
