"""For PyTorch: datasets to swap in, transforms that decode only what is seen, loaders."""

from fastdecode.torch.transforms import EncodedTransform, Normalize

__all__ = ["EncodedTransform", "Normalize"]
