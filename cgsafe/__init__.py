"""cgsafe: finds CUDA-graph hazards in PyTorch code before a GPU is started."""

__version__ = "0.1.0"
