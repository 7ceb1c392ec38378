"""The debug server over HTTP and gRPC."""
