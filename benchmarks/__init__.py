"""relive beside its peers, in one run: ``python -m benchmarks`` (see README.md)."""
