"""A Kafka broker to develop and test with: `make kafka`, and the fixtures of the tests."""
