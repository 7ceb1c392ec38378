"""Debug a PyTorch training: ``with tensight.torch.debug(model, optimizer) as dbg: …``."""
