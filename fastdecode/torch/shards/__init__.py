"""Streams of samples out of tar shards, each sample once over all ranks and worker processes."""
