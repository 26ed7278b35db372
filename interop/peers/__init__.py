"""Third-party HTTP/2 programs, started on loopback for interop and benchmarks, and always stopped."""
