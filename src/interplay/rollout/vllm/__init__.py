"""The `vllm` engine: vLLM passes the model and schedules, this project draws. In process, or as a server inside the stage."""
