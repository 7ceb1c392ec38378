"""The agent without any framework: it observes steps, watches, keeps and records tensors, and reports them."""
