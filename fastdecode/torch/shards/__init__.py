"""Streams of samples from tar shards: ranks and worker processes share each epoch's samples."""
