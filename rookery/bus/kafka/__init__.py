"""The bus on Kafka: topics shared by runs or one set each, chunks for what is too large."""
