"""A bucket is handed over to a Kafka with Aiven's plugin: what its topic of remote log metadata has to hold."""
