"""Other people's HTTP/2 programs, started on loopback for interop and for benchmarks, and stopped whatever happens."""
