"""A model's config and safetensors headers, and a GPU, in; memory budget, decode ceiling and engine arguments out."""
