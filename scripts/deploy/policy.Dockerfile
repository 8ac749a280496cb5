# docker build -f scripts/deploy/policy.Dockerfile -t callwright-policy .
# The policy's server in training: stock vLLM, and of callwright the one module that loads weights and proves them.
FROM vllm/vllm-openai:v0.31.0
COPY . /app
RUN pip install --no-cache-dir --no-deps /app
# They open the routes that change a server: let nobody but the trainer reach it.
ENV VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
