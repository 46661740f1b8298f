"""The decoder, its Hugging Face folders, and pretrained models from outside."""
