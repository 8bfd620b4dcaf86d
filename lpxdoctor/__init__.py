"""lpxdoctor: judges NVIDIA inference servers, rolls out a pinned engine and measures its decode speed."""

__version__ = "0.1.0"
