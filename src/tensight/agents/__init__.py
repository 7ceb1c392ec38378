"""Code inside the training process: observes, watches, keeps and records tensors, and reports to the debug server.

Here is what starts it. The core (`agents.core`) is independent of frameworks; an adapter (`agents.torch`) provides the
nodes, the end of each step, and the values of tensors. What adapters for eager frameworks have in common is in
`agents.eager`. Nothing here raises into the training, and nothing depends on the server except for its protocol.
"""
