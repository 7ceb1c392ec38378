"""The debug server: the gRPC service for training processes, the HTTP API for people and programs, access control."""
