# docker build -f scripts/deploy/server.Dockerfile -t callwright-server .
# A merged checkpoint behind the vendors' APIs; the policy's own server in training is policy.Dockerfile.
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH OMP_WAIT_POLICY=passive
WORKDIR /app
COPY . /app
RUN pip install --no-cache-dir --constraint constraints.txt ".[serve]"
EXPOSE 8000
ENTRYPOINT ["callwright"]
CMD ["serve", "/model", "serve.host=0.0.0.0", "serve.port=8000"]
