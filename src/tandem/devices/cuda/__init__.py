"""CUDA. The only place that knows `torch.cuda`."""
