"""The command line: one-shot replies, batches, measurements, and everything scripts talk to."""
