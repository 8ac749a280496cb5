# docker build -f scripts/deploy/worker.Dockerfile -t callwright-worker .
# No torch: the core and the broker. The container must be allowed user namespaces for the sandbox (docs/sandbox.md).
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends bubblewrap \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY . /app
RUN pip install --no-cache-dir --constraint constraints.txt ".[servicebus,web]"
ENTRYPOINT ["callwright"]
CMD ["worker", "code", "quickstart", "executors.broker=servicebus"]
