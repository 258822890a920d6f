"""The WebSocket stream: what is new, pushed to everyone who follows, in order and resumable."""
