"""Other clients' own test suites, run against a tierd that is started for them (`make peers`)."""
